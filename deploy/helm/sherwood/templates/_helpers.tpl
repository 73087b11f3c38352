{{- define "sherwood.name" -}}
{{- if contains "sherwood" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-sherwood" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sherwood.selector" -}}
app.kubernetes.io/name: sherwood
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sherwood.labels" -}}
{{ include "sherwood.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* A size in MiB. The schema allows whole MiB, GiB and TiB. */}}
{{- define "sherwood.mib" -}}
{{- $units := dict "M" 1 "G" 1024 "T" 1048576 -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get $units (regexFind "[MGT]" .)) -}}
{{- end }}

{{/* The pod's memory by the node's memory rule, in MiB. */}}
{{- define "sherwood.memory" -}}
{{- $total := include "sherwood.mib" .Values.config.memory.total | int64 -}}
{{- $buffers := include "sherwood.mib" .Values.config.memory.buffers | int64 -}}
{{- $connections := include "sherwood.mib" .Values.connectionsMemory | int64 -}}
{{- $own := max 64 (div (add (mul $total 15) 99) 100) -}}
{{- add $total $own $buffers $connections -}}
{{- end }}

{{/* Makes whole numbers of a table integers again, in place: Helm reads every number as a float. */}}
{{- define "sherwood.integers" -}}
{{- $table := . -}}
{{- range $key, $value := $table -}}
{{- if kindIs "map" $value -}}
{{- include "sherwood.integers" $value -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}
{{- if kindIs "map" . -}}{{- include "sherwood.integers" . -}}{{- end -}}
{{- end -}}
{{- else if kindIs "float64" $value -}}
{{- if eq $value (floor $value) -}}{{- $_ := set $table $key (int64 $value) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Refuses what the schema cannot: two sockets at one port. */}}
{{- define "sherwood.ports" -}}
{{- $ports := list (int .Values.admin.port) -}}
{{- range .Values.listeners -}}
{{- if has (int .port) $ports -}}
{{- fail (printf "listeners: port %d is taken, by admin or another listener; give each its own" (int .port)) -}}
{{- end -}}
{{- $ports = append $ports (int .port) -}}
{{- end -}}
{{- end }}

{{/* The table [cluster] as JSON. Each node has its pod's name by a flag instead of `node`. */}}
{{- define "sherwood.cluster" -}}
{{- $name := include "sherwood.name" . -}}
{{- $nodes := list -}}
{{- range $node := until (int .Values.replicas) -}}
{{- $nodes = append $nodes (printf "%s-%d" $name $node) -}}
{{- end -}}
{{- with .Values.cluster -}}
{{- if lt (len $nodes) (int .statistics) -}}
{{- fail (printf "cluster.statistics: %d of %d nodes; raise replicas, or lower it" (int .statistics) (len $nodes)) -}}
{{- end -}}
{{- $bus := dict "servers" .servers -}}
{{- if .credentialsSecret -}}
{{- $_ := set $bus "credentials" "/run/sherwood/bus/bus.creds" -}}
{{- end -}}
{{- if .tlsSecret -}}
{{- $tls := dict "ca" "/run/sherwood/bus-tls/ca.crt" -}}
{{- if .certificates -}}
{{- $_ := set $tls "cert" "/run/sherwood/bus-tls/tls.crt" -}}
{{- $_ := set $tls "key" "/run/sherwood/bus-tls/tls.key" -}}
{{- end -}}
{{- $_ := set $bus "tls" $tls -}}
{{- end -}}
{{- $statistics := slice $nodes 0 (int .statistics) -}}
{{- dict "name" (.name | default $name) "node" (first $nodes) "nodes" $nodes "statistics" $statistics "bus" $bus | toJson -}}
{{- end -}}
{{- end }}

{{/* The node's configuration file. */}}
{{- define "sherwood.config" -}}
{{- $values := .Values -}}
{{- $remote := eq $values.mode "tier" -}}
{{- $config := deepCopy $values.config -}}
{{- if $values.snapshot.enabled -}}
{{- $_ := set $config.memory "snapshot" (dict "path" "/var/lib/sherwood/snapshot" "max_time" $values.snapshot.maxTime) -}}
{{- end -}}
{{- $listeners := list -}}
{{- range $values.listeners -}}
{{- $listener := omit . "port" -}}
{{- $_ := set $listener "bind" (printf "%s:%d" (ternary "0.0.0.0" "127.0.0.1" $remote) (int .port)) -}}
{{- with $values.clients -}}
{{- if .passwordsSecret -}}
{{- $_ := set $listener "auth_file" "/run/sherwood/clients/passwords" -}}
{{- end -}}
{{- if .tlsSecret -}}
{{- $tls := dict "cert" "/run/sherwood/clients-tls/tls.crt" "key" "/run/sherwood/clients-tls/tls.key" -}}
{{- if .certificates -}}
{{- $_ := set $tls "client_ca" "/run/sherwood/clients-tls/ca.crt" -}}
{{- end -}}
{{- $_ := set $listener "tls" $tls -}}
{{- else if $remote -}}
{{- $_ := set $listener "network" "trusted" -}}
{{- end -}}
{{- end -}}
{{- $listeners = append $listeners $listener -}}
{{- end -}}
{{- $_ := set $config "listener" $listeners -}}
{{- with $values.admin -}}
{{- $admin := dict "bind" (printf "%s:%d" (ternary "0.0.0.0" "127.0.0.1" .expose) (int .port)) -}}
{{- if .expose -}}
{{- $_ := set $admin "tls" (dict "cert" "/run/sherwood/admin-tls/tls.crt" "key" "/run/sherwood/admin-tls/tls.key") -}}
{{- $_ := set $admin "token_file" "/run/sherwood/admin/tokens" -}}
{{- $_ := set $admin "read_token_file" "/run/sherwood/admin/read-tokens" -}}
{{- end -}}
{{- $_ := set $config "admin" $admin -}}
{{- end -}}
{{- if $values.cluster.enabled -}}
{{- $_ := set $config "cluster" (include "sherwood.cluster" . | fromJson) -}}
{{- end -}}
{{- include "sherwood.ports" . -}}
{{- include "sherwood.integers" $config -}}
{{- toToml $config -}}
{{- end }}

{{/* A probe's request. On loopback only the program in the container can ask. */}}
{{- define "sherwood.probe" -}}
{{- $admin := .root.Values.admin -}}
{{- if $admin.expose }}
httpGet: { path: {{ .path }}, port: {{ $admin.port }}, scheme: HTTPS }
{{- else }}
exec: { command: [sherwood, ready, --url, "http://127.0.0.1:{{ $admin.port }}"] }
{{- end }}
timeoutSeconds: 5
{{- end }}

{{- define "sherwood.container" -}}
name: sherwood
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if .Values.cluster.enabled }}
args: [serve, --config, /etc/sherwood/sherwood.toml, --log-format, json, --node, $(POD_NAME)]
{{- else }}
args: [serve, --config, /etc/sherwood/sherwood.toml, --log-format, json]
{{- end }}
{{- if or .Values.cluster.enabled .Values.extraEnv }}
env:
  {{- if .Values.cluster.enabled }}
  - name: POD_NAME
    valueFrom: { fieldRef: { fieldPath: metadata.name } }
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- if or (eq .Values.mode "tier") .Values.admin.expose }}
ports:
  {{- if eq .Values.mode "tier" }}
  {{- range .Values.listeners }}
  - { name: {{ .protocol }}-{{ .port }}, containerPort: {{ .port }} }
  {{- end }}
  {{- end }}
  {{- if .Values.admin.expose }}
  - { name: admin, containerPort: {{ .Values.admin.port }} }
  {{- end }}
{{- end }}
# Until the snapshot is read, a few seconds for a GiB.
startupProbe:
  {{- include "sherwood.probe" (dict "root" . "path" "/readyz") | trim | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 120
readinessProbe:
  {{- include "sherwood.probe" (dict "root" . "path" "/readyz") | trim | nindent 2 }}
  periodSeconds: 5
livenessProbe:
  {{- include "sherwood.probe" (dict "root" . "path" "/healthz") | trim | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 6
{{- $memory := dict "memory" (printf "%sMi" (include "sherwood.memory" .)) }}
resources:
  {{- toYaml (dict "requests" (mergeOverwrite (deepCopy $memory) (.Values.resources.requests | default dict)) "limits" (mergeOverwrite $memory (.Values.resources.limits | default dict))) | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
  seccompProfile: { type: RuntimeDefault }
volumeMounts:
  - { name: sherwood-config, mountPath: /etc/sherwood, readOnly: true }
  {{- if .Values.snapshot.enabled }}
  - { name: sherwood-state, mountPath: /var/lib/sherwood }
  {{- end }}
  {{- range $name, $path := include "sherwood.secrets" . | fromYaml }}
  - { name: sherwood-{{ $name }}, mountPath: /run/sherwood/{{ $name }}, readOnly: true }
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The Secrets that the configuration needs, by the name of the folder they are mounted at. */}}
{{- define "sherwood.secrets" -}}
{{- with .Values.clients.passwordsSecret }}
clients: {{ . | quote }}
{{- end }}
{{- with .Values.clients.tlsSecret }}
clients-tls: {{ . | quote }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- with .Values.cluster.credentialsSecret }}
bus: {{ . | quote }}
{{- end }}
{{- with .Values.cluster.tlsSecret }}
bus-tls: {{ . | quote }}
{{- end }}
{{- end }}
{{- if .Values.admin.expose }}
admin: {{ .Values.admin.tokensSecret | quote }}
admin-tls: {{ .Values.admin.tlsSecret | quote }}
{{- end }}
{{- end }}

{{- define "sherwood.volumes" -}}
- name: sherwood-config
  configMap: { name: {{ include "sherwood.name" . }} }
{{- range $name, $secret := include "sherwood.secrets" . | fromYaml }}
- name: sherwood-{{ $name }}
  # The node refuses files that others than owner and group can read.
  secret: { secretName: {{ $secret | quote }}, defaultMode: 0440 }
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sherwood.snapshotSize" -}}
{{- .Values.snapshot.size | default (printf "%dMi" (mul 2 (include "sherwood.mib" .Values.config.memory.total | int64))) -}}
{{- end }}

{{/* What pods of both modes have in common. */}}
{{- define "sherwood.pod" -}}
metadata:
  labels:
    {{- include "sherwood.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Pods restart when the configuration changes.
    checksum/config: {{ include "sherwood.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ add 15 (.Values.snapshot.maxTime | trimSuffix "s" | int64) }}
  # Secrets and the snapshot's volume are the group's.
  securityContext: { fsGroup: 65532 }
  {{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with get $.Values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
