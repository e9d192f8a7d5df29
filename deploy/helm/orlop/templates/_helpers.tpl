{{- define "orlop.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-orlop" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "orlop.selector" -}}
app.kubernetes.io/name: orlop
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "orlop.labels" -}}
{{ include "orlop.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "orlop.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Names on CSIDriver and cluster-wide objects: two releases must not share them. */}}
{{- define "orlop.clusterName" -}}
{{ include "orlop.name" . }}-{{ .Release.Namespace }}
{{- end -}}

{{/* auto, true or false, and for auto whether the cluster has the API. */}}
{{- define "orlop.wanted" -}}
{{- if eq (toString .setting) "auto" -}}
{{- if .root.Capabilities.APIVersions.Has .api -}}true{{- end -}}
{{- else if eq (toString .setting) "true" -}}true{{- end -}}
{{- end -}}

{{- define "orlop.snapshots" -}}
{{- include "orlop.wanted" (dict "root" . "setting" .Values.snapshots.enabled "api" "snapshot.storage.k8s.io/v1") -}}
{{- end -}}

{{/* The version of the group snapshot API that csi-snapshotter of this chart speaks. */}}
{{- define "orlop.groupApi" -}}groupsnapshot.storage.k8s.io/v1beta2{{- end -}}

{{- define "orlop.groups" -}}
{{- if include "orlop.snapshots" . -}}
{{- include "orlop.wanted" (dict "root" . "setting" .Values.snapshots.groups "api" (include "orlop.groupApi" .)) -}}
{{- end -}}
{{- end -}}

{{- define "orlop.metadata" -}}
{{- if include "orlop.snapshots" . -}}
{{- include "orlop.wanted" (dict "root" . "setting" .Values.snapshotMetadata.enabled "api" "cbt.storage.k8s.io/v1beta1") -}}
{{- end -}}
{{- end -}}

{{- define "orlop.attributes" -}}
{{- if .Values.node.workloadCgroup -}}
{{- include "orlop.wanted" (dict "root" . "setting" .Values.volumeAttributes.enabled
    "api" "storage.k8s.io/v1beta1/VolumeAttributesClass") -}}
{{- end -}}
{{- end -}}

{{- define "orlop.isRbd" -}}{{- if eq .Values.pool.kind "rbd" -}}true{{- end -}}{{- end -}}

{{- define "orlop.isLvm" -}}{{- if eq .Values.pool.kind "lvm" -}}true{{- end -}}{{- end -}}

{{/* What the daemon of a node is told of its pool. */}}
{{- define "orlop.poolEnvironment" -}}
{{- if .Values.pool.config -}}
- name: ORLOP_CONFIG
  value: /etc/orlop/pools/orlop.toml
{{- else -}}
{{- if include "orlop.isLvm" . -}}
- name: ORLOP_POOL_KIND
  value: lvm
- name: ORLOP_LVM_GROUP
  value: {{ required "pool.lvm.group is needed for pools of kind lvm" .Values.pool.lvm.group }}
- name: ORLOP_LVM_THIN_POOL
  value: {{ .Values.pool.lvm.thinPool }}
{{- range $name, $value := dict "SIZE" .Values.pool.lvm.size "CHUNK_SIZE" .Values.pool.lvm.chunkSize
    "METADATA_SIZE" .Values.pool.lvm.metadataSize "EXTEND_AT" .Values.pool.lvm.extendAt
    "EXTEND_BY" .Values.pool.lvm.extendBy "EXTEND_LIMIT" .Values.pool.lvm.extendLimit }}
{{- with $value }}
- name: ORLOP_LVM_{{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- else -}}
- name: ORLOP_POOL
  value: {{ .Values.pool.path }}
{{- end }}
- name: ORLOP_POOL_NAME
  value: {{ .Values.pool.name }}
- name: ORLOP_POOL_FLOOR
  value: {{ .Values.pool.floor | quote }}
- name: ORLOP_POOL_OVERCOMMIT
  value: {{ .Values.pool.overcommit | quote }}
{{- if not (include "orlop.isLvm" .) }}
{{- with .Values.pool.imageSize }}
- name: ORLOP_POOL_IMAGE_SIZE
  value: {{ . | quote }}
{{- end }}
{{- end }}
- name: ORLOP_POOL_CREATE
  value: {{ .Values.pool.create | quote }}
{{- end -}}
{{- end -}}

{{- define "orlop.attaches" -}}
{{- if or (include "orlop.isRbd" .) .Values.sidecars.attacher.enabled -}}true{{- end -}}
{{- end -}}

{{- define "orlop.peerSecret" -}}
{{ .Values.peers.certificates.secret | default (printf "%s-peers" (include "orlop.name" .)) }}
{{- end -}}

{{- define "orlop.metadataService" -}}{{ include "orlop.name" . }}-snapshot-metadata{{- end -}}

{{/* What all daemons have in common. */}}
{{- define "orlop.environment" -}}
- name: ORLOP_DRIVER_NAME
  value: {{ .Values.driver.name }}
- name: ORLOP_ATTACH
  value: {{ if include "orlop.attaches" . }}"true"{{ else }}"false"{{ end }}
- name: ORLOP_LOG
  value: {{ .Values.log.level | quote }}
- name: ORLOP_LOG_FORMAT
  value: {{ .Values.log.format }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "orlop.peerEnvironment" -}}
- name: ORLOP_PEERS
  value: {{ include "orlop.name" . }}-peers.{{ .Release.Namespace }}.svc:{{ .Values.peers.port }}
- name: ORLOP_PEER_CA
  value: /etc/orlop/peers/tls.crt
- name: ORLOP_PEER_CA_KEY
  value: /etc/orlop/peers/tls.key
{{- end -}}

{{- define "orlop.rbdEnvironment" -}}
- name: ORLOP_POOL_KIND
  value: rbd
- name: ORLOP_POOL_NAME
  value: {{ .Values.pool.name }}
- name: ORLOP_RBD_MONITORS
  value: {{ required "pool.rbd.monitors is needed for pools of kind rbd" .Values.pool.rbd.monitors | quote }}
- name: ORLOP_RBD_POOL
  value: {{ .Values.pool.rbd.pool }}
{{- with .Values.pool.rbd.namespace }}
- name: ORLOP_RBD_NAMESPACE
  value: {{ . }}
{{- end }}
- name: ORLOP_RBD_USER
  value: {{ .Values.pool.rbd.user }}
- name: ORLOP_RBD_KEYRING
  value: /etc/orlop/ceph/keyring
- name: ORLOP_RBD_TIMEOUT_SECONDS
  value: {{ .Values.pool.rbd.timeoutSeconds | quote }}
- name: ORLOP_POOL_CREATE
  value: {{ .Values.pool.create | quote }}
{{- end -}}

{{/* The same rights for all containers that need none. */}}
{{- define "orlop.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "orlop.metadataSecret" -}}
{{ .Values.snapshotMetadata.certificates.secret | default (include "orlop.metadataService" .) }}
{{- end -}}

{{/* One sidecar: root, name, tag, args, and mounts (volume to path) beside the socket. */}}
{{- define "orlop.sidecar" -}}
- name: {{ .name }}
  image: {{ .root.Values.sidecars.registry }}/{{ .name }}:{{ .tag }}
  imagePullPolicy: {{ .root.Values.sidecars.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --v={{ .root.Values.sidecars.logLevel }}
    {{- range .args }}
    - {{ . }}
    {{- end }}
  resources: {{ toYaml .root.Values.sidecars.resources | nindent 4 }}
  securityContext: {{ include "orlop.unprivileged" .root | nindent 4 }}
  volumeMounts:
    - name: socket
      mountPath: /csi
    {{- range $volume, $path := .mounts }}
    - name: {{ $volume }}
      mountPath: {{ $path }}
      readOnly: true
    {{- end }}
{{- end -}}

{{/* Where all daemons serve metrics, if they do. */}}
{{- define "orlop.metricsEnvironment" -}}
{{- if .Values.metrics.port -}}
- name: ORLOP_METRICS_LISTEN
  value: 0.0.0.0:{{ .Values.metrics.port }}
{{- if .Values.metrics.volumes }}
- name: ORLOP_METRICS_VOLUMES
  value: "true"
{{- end }}
{{- end -}}
{{- end }}

{{- define "orlop.metricsPort" -}}
{{- if .Values.metrics.port -}}
- name: metrics
  containerPort: {{ .Values.metrics.port }}
{{- end -}}
{{- end }}
