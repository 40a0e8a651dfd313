// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The short name of a control group.

/// The last part of a control group's path without its kind: `/system.slice/nginx.service` is `nginx`. The root has no name.
pub fn place(path: &str) -> String {
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let kinds = [".service", ".scope", ".slice"];
    kinds.iter().find_map(|kind| last.strip_suffix(kind)).unwrap_or(last).to_owned()
}
