{{/* A file of deploy/, with the namespace of this release. Quoted, because a namespace can look like a number. */}}
{{- define "5spot.shipped" -}}
{{- $namespace := .context.Release.Namespace -}}
{{- .context.Files.Get (printf "files/%s" .file)
    | replace "namespace: 5spot-system" (printf "namespace: %s" (quote $namespace)) -}}
{{- end -}}

{{/* Selector labels of the controller's pods. */}}
{{- define "5spot.controllerLabels" -}}
app.kubernetes.io/name: 5-spot
app.kubernetes.io/component: controller
{{- end -}}

{{- define "5spot.image" -}}
{{- $tag := .image.tag | default .appVersion -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end }}
{{- end -}}
