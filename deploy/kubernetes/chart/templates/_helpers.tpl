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
{{- end }}

{{- define "waitroom.secret" -}}
{{ .Values.secret.existing | default (include "waitroom.name" .) }}
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
