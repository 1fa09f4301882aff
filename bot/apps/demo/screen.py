"""Show the demo to a person in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from agent_runtime import (
    CompletionWithdrawn,
    Ended,
    Event,
    Observed,
    Started,
    StepStarted,
    Streamed,
    StreamReset,
    ToolCalled,
    ToolProgressed,
    ToolReturned,
)

_RESULT_LINES = 6


class DemoScreen:
    """Prints the play as it happens; knows how every event looks."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False

    def heading(self, text: str) -> None:
        """Begin a new act."""
        self._end_text()
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def say(self, text: str, *, style: str = "") -> None:
        """One line of the narrator's."""
        self._end_text()
        self._console.print(Text(text, style=style), highlight=False)

    def markdown(self, text: str, *, title: str) -> None:
        """A comment, as GitHub would show it."""
        self._end_text()
        self._console.print(Panel(Markdown(text), title=Text(title), title_align="left", border_style="dim"))

    def diff(self, patch: str) -> None:
        """A change."""
        self._end_text()
        self._console.print(Syntax(patch.rstrip(), "diff", background_color="default", word_wrap=True))

    def on_event(self, event: Event) -> None:
        """Show one event of the agent's run."""
        match event:
            case StepStarted(step=step, max_steps=most):
                self._end_text()
                self._console.print(f"\n[bold cyan]step {step}[/] [dim]of at most {most}[/]")
            case Streamed(text=text, completion=completion):
                self._in_text = True
                self._console.print(Text(text, style="green" if completion else ""), end="")
            case StreamReset():
                self.say("(the reply broke off; trying again)", style="yellow")
            case ToolCalled(label=label):
                self.say(f"  ▸ {label}", style="cyan")
            case ToolProgressed(text=text):
                self.say(f"    {text}", style="dim")
            case ToolReturned(text=text, ok=ok):
                lines = [line for line in text.splitlines() if line.strip()]
                for line in lines if len(lines) <= _RESULT_LINES else ["…", *lines[-_RESULT_LINES:]]:
                    self.say(f"    {line[: max(20, self._console.width - 6)]}", style="dim" if ok else "red")
            case CompletionWithdrawn():
                self.say(
                    "  ✗ the step failed, so its completion does not count; the run continues", style="bold yellow"
                )
            case Started() | Observed() | Ended() | _:
                pass

    def _end_text(self) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
