import type { SessionFacts } from "../../asks/sessions.ts";
import { visibleLine } from "../../facts/visible.ts";

const words: Readonly<Record<SessionFacts["state"]["state"], string>> = {
  idle: "idle",
  catching_up: "answering",
  waiting: "throttled",
  compacting: "compacting",
};

/** What goes on in a session, in a word and a colour. */
export function SessionStateMark({ state: { state } }: { state: SessionFacts["state"] }) {
  return (
    <span className={`status of-${state === "idle" ? "idle" : "claimed"}`}>
      <span className="dot" aria-hidden="true" />
      {words[state] ?? visibleLine(state, 40)}
    </span>
  );
}
