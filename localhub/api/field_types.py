"""The types of what requests may say, by the names of their fields; others are refused before anything is done. Pure.

A name means the same type wherever it is used, so one table serves all addresses. `name[]` is an entry of a list, and
`name.inner` a field of an object.
"""

from __future__ import annotations

from collections.abc import Mapping

from localhub.api.errors import HubError

_OBJECTS = "actions[] author comments[] committer output output.annotations[] output.images[] permissions tree[]"
_LISTS = (
    "actions assignees comments issue_field_values labels output.annotations output.images parents repositories "
    "repository_ids reviewers team_reviewers"
)
_TEXTS = (
    "actions[].description actions[].identifier actions[].label assignee assignees[] author.date author.email "
    "author.name base base_tree body color comments[].body comments[].path comments[].side comments[].start_side "
    "commit_id commit_message commit_title committer.date committer.email committer.name completed_at conclusion "
    "content context description details_url encoding event external_id head head_repo head_sha lock_reason "
    "merge_method message name new_name output.annotations[].annotation_level output.annotations[].message "
    "output.annotations[].path output.annotations[].raw_details output.annotations[].title output.summary "
    "output.text output.title parents[] path ref repositories[] reviewers[] sha side signature start_side "
    "started_at state state_reason status subject_type target_url tree[].content tree[].mode tree[].path tree[].sha "
    "tree[].type"
)
_FLAGS = "draft force maintainer_can_modify prerelease"
_NUMBERS = (
    "duplicate_issue_id in_reply_to issue line position start_line repository_ids[] comments[].line "
    "comments[].position comments[].start_line output.annotations[].start_line output.annotations[].end_line "
    "output.annotations[].start_column output.annotations[].end_column"
)

TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(_OBJECTS.split(), (dict,)),
    **dict.fromkeys(_LISTS.split(), (list,)),
    **dict.fromkeys(_TEXTS.split(), (str,)),
    **dict.fromkeys(_FLAGS.split(), (bool,)),
    **dict.fromkeys(_NUMBERS.split(), (int,)),
    "labels[]": (str, dict),
    "milestone": (str, int),
    "title": (str, int),
    "type": (str, dict),
    "tree": (list, str),  # of a commit it is an id, of a tree its entries
}
_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}


def demand_types(body: Mapping[str, object]) -> None:
    """Refuse a body with a field of a wrong type; null counts as left out.

    Raises:
        HubError: 422.
    """
    for name, value in body.items():
        _demand(name, value)


def _demand(name: str, value: object) -> None:
    allowed = TYPES.get(name)
    if value is None or allowed is None:
        return
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        wanted = " or ".join(_NAMES[each] for each in allowed)
        raise HubError(422, f"Invalid request.\n\nFor 'properties/{name}', {value!r} is not of type {wanted}.")
    if isinstance(value, list):
        for each in value:
            _demand(f"{name}[]", each)
    if isinstance(value, dict):
        for inner, each in value.items():
            _demand(f"{name}.{inner}", each)
