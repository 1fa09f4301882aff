"""Suggest fixes for a machine on which bubblewrap does not work. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_PACKAGE_MANAGERS = {
    # the `ID` or `ID_LIKE` of os-release(5) → what installs a package there
    "debian": "sudo apt-get install --yes",
    "ubuntu": "sudo apt-get install --yes",
    "fedora": "sudo dnf install --assumeyes",
    "rhel": "sudo dnf install --assumeyes",
    "suse": "sudo zypper install --no-confirm",
    "arch": "sudo pacman --sync --noconfirm",
    "alpine": "sudo apk add",
}
_OLD = "Unknown option"
_NO_PROC = ("mount proc", "mounting proc")
_NO_NAMESPACES = ("uid map", "no permissions to create", "rtm_newaddr", "creating new namespace", "no space left")

_APPARMOR = """\
AppArmor prevents programs without a profile from creating user namespaces (Ubuntu does so from 23.10 on). Give \
bubblewrap one:

sudo tee /etc/apparmor.d/bwrap >/dev/null <<'END'
abi <abi/4.0>,
include <tunables/global>
profile bwrap {program} flags=(unconfined) {{
  userns,
}}
END
sudo apparmor_parser --replace /etc/apparmor.d/bwrap

On a machine that is discarded after the job, this does as well:
sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0"""
_CLONE = """\
The kernel allows only root to create user namespaces. Allow them for all users, now and after a reboot:

sudo sysctl --write kernel.unprivileged_userns_clone=1
echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/60-user-namespaces.conf"""
_MOST = """\
The kernel allows no user namespaces. Allow them, now and after a reboot:

sudo sysctl --write user.max_user_namespaces=10000
echo user.max_user_namespaces=10000 | sudo tee /etc/sysctl.d/60-user-namespaces.conf"""
_CONTAINER = """\
This is a container whose engine prevents programs from creating namespaces. Start it with these additional options:

--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined

(podman takes `--security-opt unmask=ALL` for the last.) bubblewrap applies stricter rules to the agent's programs."""
_UNKNOWN = """\
The kernel refuses user namespaces and does not say why. Run this as the user who runs the bot:

unshare --user --map-root-user true; sysctl kernel.unprivileged_userns_clone user.max_user_namespaces"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine says of itself. The kernel's settings are None where it does not have them.

    Attributes:
        systems: `ID` and the words of `ID_LIKE` in its os-release(5).
        program: where bubblewrap is.
        apparmor_restricts: `kernel.apparmor_restrict_unprivileged_userns`.
        userns_clone: `kernel.unprivileged_userns_clone`, which Debian's older kernels have.
        max_user_namespaces: `user.max_user_namespaces`.
        container: whether it is a container.
        root: whether we are root, whom the first two do not stop.
    """

    systems: tuple[str, ...] = ()
    program: str = "/usr/bin/bwrap"
    apparmor_restricts: int | None = None
    userns_clone: int | None = None
    max_user_namespaces: int | None = None
    container: bool = False
    root: bool = False


def installing(package: str, systems: Iterable[str]) -> str:
    """The command that installs a package."""
    known = next((_PACKAGE_MANAGERS[name] for name in systems if name in _PACKAGE_MANAGERS), None)
    return f"{known or _PACKAGE_MANAGERS['debian']} {package}"


def explain(said: str, code: int, machine: Machine) -> str:
    """What happened when bubblewrap was to start a program, and how to fix it.

    Args:
        said: what it wrote to standard error.
        code: its exit code.
        machine: where.
    """
    happened = f"bubblewrap could not start a sandbox (exit code {code}): {said.strip() or 'it said nothing'}"
    if _OLD.lower() in said.lower():
        return f"{happened}\nIt is too old; version 0.8 or newer is needed: {installing('bubblewrap', machine.systems)}"
    if any(sign in said.lower() for sign in _NO_PROC):
        return f"{happened}\n{_CONTAINER}"
    if any(sign in said.lower() for sign in _NO_NAMESPACES):
        # Everything that is known to keep user namespaces from us; each must be fixed.
        found = []
        if machine.max_user_namespaces == 0:
            found.append(_MOST)
        if machine.userns_clone == 0 and not machine.root:
            found.append(_CLONE)
        if machine.apparmor_restricts and not machine.root and not machine.container:
            found.append(_APPARMOR.format(program=machine.program))
        if machine.container:
            found.append(_CONTAINER)
        return "\n".join([happened, *(found or [_UNKNOWN])])
    return happened
