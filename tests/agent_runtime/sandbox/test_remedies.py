from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from agent_runtime.sandbox.bubblewrap import Machine, explain, install_command, this_machine

REFUSED = "bwrap: setting up uid map: Permission denied"
NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow them"
EXCEEDED = "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)"

USER = Machine(systems=("ubuntu", "debian"), apparmor_restricts=0, userns_clone=1, max_user_namespaces=30_000)
UBUNTU = replace(USER, apparmor_restricts=1)
OLD_DEBIAN = replace(USER, userns_clone=0)
NONE_LEFT = replace(USER, max_user_namespaces=0)
INSIDE = replace(USER, container=True)

PROFILE, SWITCH = "profile bwrap /usr/bin/bwrap flags=(unconfined)", "apparmor_restrict_unprivileged_userns=0"
CLONE, MOST, DOCKER = "userns_clone=1", "user.max_user_namespaces=10000", "--security-opt seccomp=unconfined"
ALL = (PROFILE, SWITCH, CLONE, MOST, DOCKER, "0.8", "unshare --user")


@pytest.mark.parametrize(
    ("said", "machine", "wanted"),
    [
        (REFUSED, UBUNTU, (PROFILE, SWITCH)),
        (NO_NAMESPACE, OLD_DEBIAN, (CLONE,)),
        (EXCEEDED, NONE_LEFT, (MOST,)),
        (EXCEEDED, replace(NONE_LEFT, root=True), (MOST,)),
        (NO_NAMESPACE, replace(NONE_LEFT, apparmor_restricts=1), (MOST, PROFILE, SWITCH)),
        ("bwrap: Creating new namespace failed: Operation not permitted", replace(INSIDE, root=True), (DOCKER,)),
        (REFUSED, replace(INSIDE, apparmor_restricts=1), (DOCKER,)),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", INSIDE, (DOCKER,)),
        ("bwrap: Unknown option --disable-userns", USER, ("0.8",)),
        (REFUSED, USER, ("unshare --user",)),
        (REFUSED, Machine(), ("unshare --user",)),
        ("", USER, ()),
        ("bwrap: Can't find source path /x: No such file or directory", UBUNTU, ()),
    ],
)
def test_the_remedy_is_the_one_for_this_machine(said: str, machine: Machine, wanted: tuple[str, ...]) -> None:
    text = explain(said, 1, machine)
    assert (said or "it said nothing") in text
    assert [remedy for remedy in ALL if remedy in text] == sorted(wanted, key=ALL.index)


def test_the_profile_is_for_the_bubblewrap_that_is_there() -> None:
    assert "profile bwrap /opt/bin/bwrap flags" in explain(REFUSED, 1, replace(UBUNTU, program="/opt/bin/bwrap"))


def test_the_commands_of_a_remedy_can_be_pasted_into_a_shell() -> None:
    for machine in (UBUNTU, OLD_DEBIAN, NONE_LEFT):
        remedy = explain(REFUSED, 1, machine).partition("\n\n")[2]
        stand_in = 'sudo() { if [ "$1" = tee ]; then cat >/dev/null; fi; }\n'
        commands = "".join(part for part in remedy.split("\n\n") if "sudo" in part).replace("this does as well:", ":")
        commands = "\n".join(line for line in commands.splitlines() if not line.startswith("On a machine"))
        done = subprocess.run(["sh", "-euc", stand_in + commands], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (commands, done.stderr)


@pytest.mark.parametrize(
    ("systems", "command"),
    [
        (("ubuntu", "debian"), "sudo apt-get install --yes bubblewrap"),
        (("rocky", "rhel", "centos", "fedora"), "sudo dnf install --assumeyes bubblewrap"),
        (("alpine",), "sudo apk add bubblewrap"),
        (("opensuse-tumbleweed", "opensuse", "suse"), "sudo zypper install --no-confirm bubblewrap"),
        (("arch",), "sudo pacman --sync --noconfirm bubblewrap"),
        ((), "sudo apt-get install --yes bubblewrap"),
    ],
)
def test_a_missing_program_is_installed_with_the_systems_own_command(systems: tuple[str, ...], command: str) -> None:
    assert install_command("bubblewrap", systems) == command


def test_this_machine_can_be_looked_at() -> None:
    assert isinstance(this_machine(), Machine)
