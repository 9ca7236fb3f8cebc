//! Who a control group belongs to: a unit of systemd, a pod of Kubernetes, a container.
//!
//! Its path says which, and what kubelet and the container runtimes keep in files gives the names. The forms of paths:
//! systemd ends the names of units with their kind. kubelet makes a group for each pod, `pod<UID>` below `kubepods`, with
//! `_` for `-` where systemd manages groups (`pkg/kubelet/cm`). Below it, or below a slice, runtimes make one for each
//! container, which ends with an ID of 64 hexadecimal digits: `<ID>`, `docker-<ID>.scope`, `libpod-<ID>.scope`,
//! `cri-containerd-<ID>.scope`, `crio-<ID>.scope`. LXC and systemd-nspawn use the container's name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::By;
use super::report::group::Who;

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub name: String,
    pub pod: Option<Pod>,
}

/// The names of pods and containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// By UID, as kubelet writes it.
    pods: BTreeMap<String, Pod>,
    /// By ID.
    containers: BTreeMap<String, Container>,
}

impl Owners {
    /// Learns from the name of a directory of `/var/log/pods`: `NAMESPACE_POD_UID`.
    pub fn add_pod_folder(&mut self, folder: &str) {
        let mut parts = folder.splitn(3, '_');
        if let (Some(namespace), Some(name), Some(uid)) = (parts.next(), parts.next(), parts.next())
            && [namespace, name, uid].iter().all(|part| !part.is_empty())
        {
            let pod = Pod {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            self.pods.insert(uid.to_owned(), pod);
        }
    }

    /// Learns from the name of a file of `/var/log/containers`: `POD_NAMESPACE_CONTAINER-ID.log`.
    pub fn add_container_log(&mut self, file: &str) {
        let mut parts = file.splitn(3, '_');
        if let (Some(pod), Some(namespace), Some(rest)) = (parts.next(), parts.next(), parts.next())
            && let Some((name, id)) = rest.strip_suffix(".log").and_then(|rest| rest.rsplit_once('-'))
            && is_id(id)
        {
            let pod = Pod {
                namespace: namespace.to_owned(),
                name: pod.to_owned(),
            };
            self.add_container(id, name, Some(pod));
        }
    }

    /// Learns the name of a container.
    pub fn add_container(&mut self, id: &str, name: &str, pod: Option<Pod>) {
        let container = Container {
            name: name.to_owned(),
            pod,
        };
        self.containers.insert(id.to_owned(), container);
    }

    /// Whose control group it is, by `Unit`, `Pod` or `Container`; the group itself if it has no owner, or one without a name.
    #[must_use]
    pub fn who(&self, by: By, path: String) -> Who {
        match by {
            By::Unit => unit(&path).map(|name| Who::Unit { name: name.to_owned() }),
            By::Pod => self.pod(&path).map(Who::Pod),
            By::Container => self.container(&path).map(Who::Container),
            _ => None,
        }
        .unwrap_or(Who::Cgroup { path })
    }

    fn pod(&self, path: &str) -> Option<Pod> {
        let by_container = || self.containers.get(container_id(path)?)?.pod.clone();
        self.pods.get(&pod_uid(path)?).cloned().or_else(by_container)
    }

    fn container(&self, path: &str) -> Option<Container> {
        let Some(id) = container_id(path) else {
            return container_name(path).map(|name| Container { name, pod: None });
        };
        let found = self.containers.get(id)?;
        Some(Container {
            pod: found.pod.clone().or_else(|| self.pod(path)),
            ..found.clone()
        })
    }
}

/// The unit of a control group: the last component of its path that has the ending of a unit.
#[must_use]
pub fn unit(path: &str) -> Option<&str> {
    let is_unit = |name: &&str| [".service", ".scope", ".slice"].iter().any(|end| name.ends_with(end));
    path.rsplit('/').find(is_unit)
}

/// Whether a control group is that of a pod or of a container whose name is in a file.
#[must_use]
pub fn is_named(path: &str) -> bool {
    pod_uid(path).is_some() || container_id(path).is_some()
}

/// The UID of the pod that a control group is in.
fn pod_uid(path: &str) -> Option<String> {
    let mut components = path.split('/').skip_while(|name| !name.starts_with("kubepods"));
    components.find_map(|name| {
        let name = name.strip_suffix(".slice").unwrap_or(name);
        let uid = name
            .strip_prefix("pod")
            .or_else(|| name.rsplit_once("-pod").map(|(_, uid)| uid))?;
        (!uid.is_empty()).then(|| uid.replace('_', "-"))
    })
}

/// The ID of the container that a control group is in.
fn container_id(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(|name| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        let (kind, id) = name.rsplit_once('-').unwrap_or(("", name));
        // What watches a container is not in it.
        (is_id(id) && !kind.ends_with("conmon")).then_some(id)
    })
}

/// The name of a container whose runtime names control groups after containers.
fn container_name(path: &str) -> Option<String> {
    path.split('/').find_map(|name| {
        let nspawn = || name.strip_prefix("systemd-nspawn@")?.strip_suffix(".service");
        let machine = || name.strip_prefix("machine-")?.strip_suffix(".scope");
        let lxc = name.strip_prefix("lxc.payload.");
        let name = lxc.or_else(nspawn).or_else(machine)?;
        (!name.is_empty()).then(|| unescaped(name))
    })
}

/// A name without systemd's escapes, `\xHH`.
fn unescaped(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(u8::is_ascii) {
            Some(byte) => {
                whole.push(byte.into());
                whole.push_str(&part[2..]);
            }
            None => {
                whole.push_str("\\x");
                whole.push_str(part);
            }
        }
    }
    whole
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const UID: &str = "0b2a4f6e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";

    fn id(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn owners() -> Owners {
        let mut owners = Owners::default();
        owners.add_pod_folder(&format!("shop_db-0_{UID}"));
        owners.add_container_log(&format!("db-0_shop_postgres-{}.log", id('a')));
        owners.add_container(&id('b'), "web", None);
        owners
    }

    fn name(by: By, path: &str) -> String {
        owners().who(by, path.to_owned()).name()
    }

    #[test]
    fn a_unit_has_the_control_groups_below_it() {
        assert_eq!(unit("/system.slice/nginx.service/worker"), Some("nginx.service"));
        assert_eq!(unit("/system.slice/cron.service"), Some("cron.service"));
        assert_eq!(unit("/docker/1234"), None);
        assert_eq!(name(By::Unit, "/system.slice/cron.service"), "cron.service");
        assert_eq!(name(By::Unit, "/docker/1234"), "/docker/1234");
    }

    #[test]
    fn pods_are_found_below_systemd_and_without_it() {
        let slice = UID.replace('-', "_");
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{}.scope",
                id('a')
            ),
            format!("/kubepods.slice/kubepods-pod{slice}.slice"),
            format!("/kubepods/besteffort/pod{UID}/{}", id('f')),
            format!(
                "/kubelet.slice/kubepods.slice/kubepods-pod{slice}.slice/crio-{}.scope",
                id('f')
            ),
        ] {
            assert_eq!(name(By::Pod, &path), "shop/db-0", "{path}");
        }
        let unknown = format!("/kubepods/pod{}", UID.replace('0', "7"));
        assert_eq!(name(By::Pod, &unknown), unknown);
        assert_eq!(
            name(By::Pod, "/system.slice/pod-x.service"),
            "/system.slice/pod-x.service"
        );
    }

    #[test]
    fn containers_are_found_by_their_ids_and_names() {
        let slice = UID.replace('-', "_");
        let (a, b) = (id('a'), id('b'));
        for (path, expected) in [
            (format!("/kubepods/pod{UID}/{a}"), "shop/db-0/postgres"),
            (
                format!("/kubepods.slice/kubepods-pod{slice}.slice/cri-containerd-{a}.scope"),
                "shop/db-0/postgres",
            ),
            (format!("/docker/{b}"), "web"),
            (format!("/system.slice/docker-{b}.scope"), "web"),
            (format!("/machine.slice/libpod-{b}.scope/container"), "web"),
            ("/lxc.payload.mail/init.scope".to_owned(), "mail"),
            (
                r"/machine.slice/systemd-nspawn@my\x2dbox.service/payload".to_owned(),
                "my-box",
            ),
            ("/lxc.payload./lxc.payload.web".to_owned(), "web"),
            (r"/machine.slice/machine-qemu\x2d1\x2dvm.scope".to_owned(), "qemu-1-vm"),
        ] {
            assert_eq!(name(By::Container, &path), expected, "{path}");
        }
        for path in [
            format!("/machine.slice/libpod-conmon-{b}.scope"),
            format!("/docker/{}", id('c')),
            "/user.slice".to_owned(),
        ] {
            assert_eq!(name(By::Container, &path), path);
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_names_are_read(text in fuzz::text_like(r"a_b_c-\x2dab/kubepods/podx/systemd-nspawn@x\xff.service")) {
            let mut owners = owners();
            owners.add_pod_folder(&text);
            owners.add_container_log(&text);
            let path = ["/", text.as_str()].concat();
            for by in [By::Unit, By::Pod, By::Container] {
                prop_assert!(!owners.who(by, path.clone()).name().is_empty());
            }
        }
    }
}
