{{- /* SPDX-License-Identifier: Apache-2.0 OR MIT */ -}}

{{- /* Releases beside each other would be two daemons with one set of pins: so names have the release's name only once. */ -}}
{{- define "topstat.name" -}}
{{- if contains "topstat" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-topstat{{ end }}
{{- end }}

{{- define "topstat.selector" -}}
app.kubernetes.io/name: topstat
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "topstat.labels" -}}
{{ include "topstat.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "topstat.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The daemon's settings. Metrics take a group that may read the tree. */ -}}
{{- define "topstat.config" -}}
{{- if .Values.metrics.enabled }}
{{- if regexMatch "(?m)^\\s*group\\s*=" .Values.config }}
{{- fail "config has a group, and metrics.enabled gives the tree to the server's group: remove one of them" }}
{{- end -}}
group = "65534"
{{ end }}
{{- .Values.config }}
{{- end }}
