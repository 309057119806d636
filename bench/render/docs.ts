import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadResults } from "../side-by-side/results.ts";
import { renderAgents } from "./agents.ts";
import { renderAlone } from "./alone.ts";
import { renderCluster } from "./cluster.ts";
import { renderDashboard } from "./dashboard.ts";
import { renderFirstScreen } from "./first-screen.ts";
import { renderFlows } from "./flows.ts";
import { renderSteps } from "./steps.ts";
import { pictureOf } from "./picture.ts";
import { renderServer } from "./server.ts";
import { renderSessions } from "./sessions.ts";
import { tablesOf } from "./tables.ts";
import { renderThrottle } from "./throttle.ts";

const docs = fileURLToPath(new URL("../../docs/", import.meta.url));
const begin = "<!-- figures of tasks on Postgres: made by `npm run bench -- render` -->";
const end = "<!-- end of figures -->";

/** Puts what the results say into the documentation: tables between two marks, and a picture. */
export function renderDocs(): string[] {
  const results = loadResults();
  const page = `${docs}benchmarks.md`;
  const picture = `${docs}benchmarks-postgres.svg`;
  const text = readFileSync(page, "utf8");
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
  const before = text.slice(0, from + begin.length);
  const shown = "![Bars: each system beside the others](benchmarks-postgres.svg)";
  writeFileSync(page, `${before}\n\n${shown}\n\n${tablesOf(results)}\n\n${text.slice(to)}`);
  writeFileSync(picture, pictureOf(results));
  const rendered = [
    renderFirstScreen,
    renderAlone,
    renderThrottle,
    renderFlows,
    renderSteps,
    renderSessions,
    renderCluster,
    renderAgents,
    renderServer,
    renderDashboard,
  ];
  return [...new Set([page, picture, ...rendered.flatMap((render) => render())])];
}
