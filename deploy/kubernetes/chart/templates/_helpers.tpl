{{- define "waitroom.name" -}}
{{- if contains "waitroom" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-waitroom" (.Release.Name | trunc 41 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "waitroom.selector" -}}
app.kubernetes.io/name: waitroom
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: sidecar
{{- end }}

{{- define "waitroom.labels" -}}
{{ include "waitroom.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "waitroom.secret" -}}
{{ .Values.secret.existing | default (include "waitroom.name" .) }}
{{- end }}

{{- define "waitroom.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ printf "%s@%s" $image.repository $image.digest }}
{{- else }}{{ printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) }}{{ end }}
{{- end }}

{{- /* What every pod of this image has: the replicas, the workers and the migration. */}}
{{- define "waitroom.pod" -}}
# Kubernetes would make WAITROOM_… variables of the services, and they are no settings.
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .Values.serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "waitroom.container" -}}
image: {{ include "waitroom.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - {name: WAITROOM_SECRET_KEYS_FILE, value: /run/secrets/waitroom/secret_keys}
  - {name: WAITROOM_ADMIN_TOKEN_FILE, value: /run/secrets/waitroom/admin_token}
  {{- if not .Values.store }}
  - {name: WAITROOM_STORE_FILE, value: /run/secrets/waitroom/store}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: settings, mountPath: /etc/waitroom, readOnly: true}
  - {name: secrets, mountPath: /run/secrets/waitroom, readOnly: true}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "waitroom.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "waitroom.secret" . }}, defaultMode: 0440}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* A JSON scalar or list is one in TOML, too. */}}
{{- define "waitroom.settings" -}}
{{- if .Values.store }}
store = {{ toJson .Values.store }}
{{- end }}
# A stopping replica answers for this long: nginx and the cluster hear of it at different moments.
shutdown_delay = "10s"
{{- range $name, $room := .Values.rooms }}

[rooms.{{ $name }}]
{{- range $setting, $value := $room }}
{{ $setting }} = {{ toJson $value }}
{{- end }}
{{- end }}
{{- with .Values.extraSettings }}

{{ . }}
{{- end }}
{{- end }}
