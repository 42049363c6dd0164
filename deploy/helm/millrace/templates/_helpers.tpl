{{- define "millrace.name" -}}
{{- if contains "millrace" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-millrace" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "millrace.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Labels of all objects; a list of the root and of the component's name. */}}
{{- define "millrace.labels" -}}
{{- $root := index . 0 -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{- define "millrace.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The name of a component's service account: a list of the root, the component's name and its values. */}}
{{- define "millrace.account" -}}
{{- $root := index . 0 -}}
{{- (index . 2).name | default (printf "%s-%s" (include "millrace.name" $root) (index . 1)) -}}
{{- end -}}

{{/* Of containers that need no rights at the node. */}}
{{- define "millrace.unprivileged" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
readOnlyRootFilesystem: true
{{- end -}}
