import type { Client } from "../../../src/client/index.ts";
import {
  FlotillaProvider,
  useConnection,
  useInbox,
  useRun,
  useSession,
  useTask,
} from "../../../src/client/react/index.ts";
import { createElement as h, type ReactNode, StrictMode, useState } from "react";

export type PanelProps = { sessionId: string; taskId: string; runId: string };

/** Every hook, twice, as two parts of a page use them, and a way to take both off the page. */
export function Panel({ client, ...props }: PanelProps & { client: Client }): ReactNode {
  const [isShown, setShown] = useState(true);
  return h(
    StrictMode,
    null,
    h(
      FlotillaProvider,
      { client },
      h("button", { onClick: () => setShown(!isShown) }, isShown ? "Hide" : "Show"),
      isShown && h(Lines, { ...props, key: "one" }),
      isShown && h(Lines, { ...props, key: "two" }),
    ),
  );
}

function Lines({ sessionId, taskId, runId }: PanelProps): ReactNode {
  const connection = useConnection();
  const session = useSession(sessionId);
  const inbox = useInbox();
  const task = useTask(taskId);
  const run = useRun(runId);
  const lines = {
    connection: connection.status,
    session: `${session.status} ${session.messages.length}`,
    inbox: `${inbox.status} ${inbox.sessions.length}`,
    task: `${task.status} ${task.value?.status ?? ""}`.trim(),
    run: `${run.status} ${run.value?.status ?? ""}`.trim(),
  };
  return h(
    "ul",
    null,
    Object.entries(lines).map(([name, text]) => h("li", { key: name }, `${name}: ${text}`)),
  );
}
