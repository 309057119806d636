import { createElement } from "react";
import { hydrateRoot } from "react-dom/client";
import { createClient } from "../../../src/client/index.ts";
import { Panel } from "./panel.ts";

const query = new URLSearchParams(location.search);
const given = (name: string): string => query.get(name) ?? "";
const client = createClient({ user: "ada" });
hydrateRoot(
  document.getElementById("root")!,
  createElement(Panel, {
    client,
    sessionId: given("session"),
    taskId: given("task"),
    runId: given("run"),
  }),
  { onRecoverableError: (error) => console.error(`not hydrated: ${String(error)}`) },
);
