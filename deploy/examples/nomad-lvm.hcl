# Orlop on a volume group of each Nomad client, for `nomad job run`. Set the image, and the volume group in the template.
# With peers (docs/cluster.md) one plugin id for all clients is right; without them, give each client a job with its own id.
job "orlop" {
  type = "system"

  group "orlop" {
    task "orlop" {
      driver = "docker"

      csi_plugin {
        id        = "orlop"
        type      = "monolith"
        mount_dir = "/csi"
      }

      config {
        image      = "localhost/orlop:0.1.0"
        privileged = true
        args       = ["serve", "--config", "/local/orlop.toml"]

        # What docs/lvm.md has under "In a container".
        volumes = [
          "/dev:/dev",
          "/run/lock/lvm:/run/lock/lvm",
          "/run/lvm:/run/lvm",
          "/etc/lvm:/etc/lvm",
          "/run/orlop:/run/orlop",
        ]
      }

      template {
        destination = "local/orlop.toml"
        data        = <<-EOT
          endpoint = "unix:///csi/csi.sock"
          node_id = "{{ env "node.unique.name" }}"

          [[pool]]
          name = "fast"
          kind = "lvm"
          group = "fast"
        EOT
      }

      resources {
        cpu    = 100
        memory = 256
      }
    }
  }
}
