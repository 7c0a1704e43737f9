// Validates manifests, a JSON list on standard input, by the schemas of the Gateway API and of Envoy
// Gateway. Prints the errors and exits with 1 if one is wrong.
import { readFileSync } from 'node:fs';
import { SecurityPolicy } from '@kubernetes-models/envoy-gateway/gateway.envoyproxy.io/v1alpha1/SecurityPolicy';
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute';

const models = [HTTPRoute, SecurityPolicy];
for (const manifest of JSON.parse(readFileSync(0, 'utf8'))) {
  const Model = models.find((model) => model.is(manifest));
  if (!Model) {
    throw new Error(`no schema: ${manifest.apiVersion} ${manifest.kind}`);
  }
  new Model(manifest).validate();
}
