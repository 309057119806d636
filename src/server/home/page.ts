import { createHash } from "node:crypto";
import { html, raw } from "hono/html";
import type { z } from "zod";
import type { fleetSpecs } from "../api/fleet.schema.ts";
import type { Overview, WaitingRun } from "./overview.ts";

export type Home = z.input<(typeof fleetSpecs.home.answers)[200]>;

/** What all pages of the server share. */
export const baseStyle = `
:root { color-scheme: light dark; --ink: #17212b; --soft: #55636f; --line: #dde3e8; --page: #fff; --accent: #0e6f87; --card: #f4f6f8 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4ebf0; --soft: #9aaab6; --line: #27343f; --page: #0d141b; --accent: #5cc4db; --card: #15202a }
}
body { margin: 0 auto; max-width: 46rem; padding: 2rem 1rem; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1rem; margin: 2rem 0 .5rem }
p { margin: .25rem 0 } ul { margin: 0; padding-left: 1.2rem } a { color: var(--accent) }
.soft { color: var(--soft) }
code { background: var(--card); border-radius: 4px; padding: .1rem .3rem; font-size: .875rem; overflow-wrap: anywhere }
`;

const style = `${baseStyle}
.docs { columns: 12rem }
table { border-collapse: collapse; width: 100% }
th { text-align: left; font-weight: 600; vertical-align: top; width: 6rem } th, td { border-top: 1px solid var(--line); padding: .4rem 0 }
`;

/** The headers of a page with this style. It has no script and may load nothing, not even from this server. */
export function headersOf(
  pageStyle: string,
  { hasForm = false }: { hasForm?: boolean } = {},
): Readonly<Record<string, string>> {
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${createHash("sha256").update(pageStyle).digest("base64")}'`,
    "img-src data:",
    "base-uri 'none'",
    `form-action ${hasForm ? "'self'" : "'none'"}`,
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");
  return {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": policy,
    "X-Frame-Options": "DENY",
    // With `no-referrer` a browser would send the form without its origin, which is how its page is known.
    "Referrer-Policy": hasForm ? "same-origin" : "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
  };
}

export const pageHeaders = headersOf(style);

const stores = { sqlite: "SQLite", postgres: "Postgres" };
const linkTexts: Readonly<Record<string, string>> = {
  signIn: "sign in with a key, or sign out",
  live: "health: this process answers",
  ready: "health: the store can be written",
  metrics: "metrics for Prometheus",
  api: "the API, as OpenAPI",
};

/** The home page. `html` escapes all interpolated text. */
export async function homePage(home: Home, origin: string): Promise<string> {
  const { version, store, links, docs, advice, overview, trouble } = home;
  const about = [version && `version ${version}`, store && `on ${stores[store]}`].filter(Boolean);
  return String(
    await html`<!doctype html>
      <html lang="en">
        <head>
          <meta charset="utf-8" />
          <meta name="viewport" content="width=device-width, initial-scale=1" />
          <link rel="icon" href="data:," />
          <title>Flotilla</title>
          ${raw(`<style>${style}</style>`)}
        </head>
        <body>
          <main>
            <h1>Flotilla</h1>
            <p class="soft">${about.join(", ")}</p>
            ${advice === undefined ? "" : html`<p>To see more: ${advice}</p>`}
            ${trouble === undefined ? "" : html`<p>The store can't be read: ${trouble}</p>`}
            ${overview === undefined ? "" : countsOf(overview)}
            ${overview === undefined ? "" : signalsOf(overview.waiting, origin)}
            <h2>Links</h2>
            <ul>
              ${Object.entries(links).map(
                ([name, path]) => html`<li><a href="${path}">${linkTexts[name] ?? name}</a></li>`,
              )}
            </ul>
            ${docs === undefined ? "" : docsOf(docs)}
            ${version === undefined ? "" : withoutDashboard()}
          </main>
        </body>
      </html>`,
  );
}

function countsOf({ tasks, runs, sessions, pods }: Overview) {
  const { all, busy } = sessions;
  const rows = { tasks, runs, sessions: { idle: Math.max(0, all - busy), busy }, pods };
  return html`<h2>In the store now</h2>
    <table>
      ${Object.entries(rows).map(
        ([name, counts]) =>
          html`<tr>
            <th scope="row">${name}</th>
            <td>${countsText(counts)}</td>
          </tr>`,
      )}
    </table>
    <p class="soft">Reload to refresh. Completed and cancelled tasks aren't counted.</p>`;
}

function docsOf(docs: Readonly<Record<string, string>>) {
  const pages = Object.entries(docs);
  if (pages.length === 0) return "";
  return html`<h2>Docs</h2>
    <ul class="docs">
      ${pages.map(
        ([name, path]) => html`<li><a href="${path}">${name.replace(/\.md$/, "")}</a></li>`,
      )}
    </ul>`;
}

function withoutDashboard() {
  return html`<p class="soft">
    This server shows no dashboard: <code>server.dashboard</code> is false, or it runs from source
    and <code>npm run build</code> hasn't built it.
  </p>`;
}

/** Leaves out counts of 0. */
function countsText(counts: Readonly<Record<string, number>>): string {
  const some = Object.entries(counts).filter(([, count]) => count > 0);
  const texts = some.map(([state, count]) => `${count} ${state.replaceAll("_", " ")}`);
  return texts.join(", ") || "none";
}

function signalsOf(waiting: readonly WaitingRun[], origin: string) {
  if (waiting.length === 0) return "";
  return html`<h2>Waiting for a signal</h2>
    <ul>
      ${waiting.map(
        ({ runId, flow, signal }) =>
          html`<li>
            ${flow} waits for <em>${signal}</em>. To send it:
            <code>${sending(`${origin}/v1/runs/${runId}/signals`, signal)}</code>
          </li>`,
      )}
    </ul>
    <p class="soft">Add a <code>"payload"</code> where the flow takes one.</p>`;
}

function sending(url: string, name: string): string {
  return `curl ${url} -H 'content-type: application/json' -d '${JSON.stringify({ name })}'`;
}
