import { html, raw } from "hono/html";
import { baseStyle, headersOf } from "../home/page.ts";

/** What the page of the sign-in shows. */
export type PageView =
  | {
      readonly type: "form";
      /** Where to go on. */
      readonly next: string;
      /** Why the last try, or the sign-in before, is refused. */
      readonly refusal?: ShownRefusal | undefined;
    }
  | {
      readonly type: "signed-in";
      readonly key: string;
      readonly role: string | undefined;
      /** The key's only tenant. */
      readonly tenant: string | undefined;
      readonly expiresAtMs: number;
      readonly next: string;
    }
  /** The host app knows who calls. */
  | { readonly type: "by-app"; readonly user: string; readonly next: string }
  /** It came over plain HTTP from another machine, so that it must take no key. */
  | { readonly type: "insecure"; readonly host: string }
  /** Callers need no credentials. */
  | { readonly type: "open"; readonly next: string };

export type ShownRefusal = { readonly what: string; readonly advice: string };

const style = `${baseStyle}
main { max-width: 26rem; margin: 0 auto; padding-top: 4vh }
h1 { margin-bottom: 1.25rem }
form { margin: 1.25rem 0 }
label { display: block; font-weight: 600; margin-bottom: .35rem }
input, button { box-sizing: border-box; width: 100%; min-height: 2.75rem; border-radius: 6px; font: inherit }
input { border: 1px solid var(--soft); background: var(--page); color: var(--ink); padding: .5rem .75rem }
button { border: 1px solid var(--accent); background: var(--accent); color: var(--page); font-weight: 600; margin-top: .9rem; cursor: pointer }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px }
.refusal { border: 1px solid var(--line); border-left: 4px solid var(--bad); background: var(--card); border-radius: 6px; padding: .75rem 1rem; margin: 0 0 1.25rem }
:root { --bad: #a3261c }
@media (prefers-color-scheme: dark) { :root { --bad: #ff9a8f } }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 0 }
dt { color: var(--soft) }
dd { margin: 0; overflow-wrap: anywhere }
`;

export const signInHeaders = headersOf(style, { hasForm: true });

/** The page as a whole. `html` escapes all interpolated text. */
export async function signInPage(
  view: PageView,
  paths: { readonly signIn: string; readonly signOut: string },
): Promise<string> {
  const title = titleOf(view);
  return String(
    await html`<!doctype html>
      <html lang="en">
        <head>
          <meta charset="utf-8" />
          <meta name="viewport" content="width=device-width, initial-scale=1" />
          <meta name="color-scheme" content="light dark" />
          <link rel="icon" href="data:," />
          <title>${title} – Flotilla</title>
          ${raw(`<style>${style}</style>`)}
        </head>
        <body>
          <main>
            <h1>${title}</h1>
            ${contentOf(view, paths)}
          </main>
        </body>
      </html>`,
  );
}

function titleOf(view: PageView): string {
  if (view.type === "form") return view.refusal ? view.refusal.what : "Sign in to Flotilla";
  if (view.type === "insecure") return "Not a safe place for a key";
  return view.type === "open" ? "No sign-in needed" : "You are signed in";
}

function contentOf(view: PageView, paths: { readonly signIn: string; readonly signOut: string }) {
  switch (view.type) {
    case "form":
      return html`${view.refusal ? refusalOf(view.refusal) : ""}
        <form method="post" action="${paths.signIn}">
          <input type="hidden" name="next" value="${view.next}" />
          <label for="key">Key</label>
          ${keyInput(view.refusal !== undefined)}
          <button type="submit">Sign in</button>
        </form>
        <p class="soft" id="hint">
          A key of this server, such as <code>fl_…</code>. It isn't kept: this browser gets a
          cookie, which ends after an hour without use, and after twelve hours in any case.
        </p>
        <p class="soft">
          No key? An administrator makes one with <code>flotilla keys create</code>.
        </p>`;
    case "signed-in":
      return html`<dl>
          <dt>Key</dt>
          <dd>${view.key}</dd>
          <dt>Role</dt>
          <dd>${view.role ?? "none: what the key's verbs allow"}</dd>
          <dt>Tenant</dt>
          <dd>${view.tenant ?? "all"}</dd>
          <dt>Until</dt>
          <dd>
            ${new Date(view.expiresAtMs).toISOString().slice(0, 16).replace("T", " ")} UTC, or an
            hour without use
          </dd>
        </dl>
        <form method="post" action="${paths.signOut}"><button type="submit">Sign out</button></form>
        <p><a href="${view.next}">Go on</a></p>`;
    case "by-app":
      return html`<p>
          The app of this server knows you as <strong>${view.user}</strong>. You need no key.
        </p>
        <p><a href="${view.next}">Go on</a></p>`;
    case "insecure":
      return html`<p>
          This page came over plain HTTP, so others on the way could read a key that is typed here.
        </p>
        <p>
          Open <code>https://${view.host}</code>, or reach the server as this machine:
          <code>ssh -L 8080:localhost:${portOf(view.host)} …</code>, then
          <code>http://localhost:8080/sign-in</code>.
        </p>`;
    case "open":
      return html`<p>This server asks for no key, and answers only programs of this machine.</p>
        <p><a href="${view.next}">Go on</a></p>`;
  }
}

function portOf(host: string): string {
  return /:(\d{1,5})$/.exec(host)?.[1] ?? "80";
}

function refusalOf({ advice }: ShownRefusal) {
  return html`<p class="refusal" role="alert" id="refusal">${advice}</p>`;
}

function keyInput(isRefused: boolean) {
  const described = raw(
    isRefused ? `aria-describedby="refusal hint" aria-invalid="true"` : `aria-describedby="hint"`,
  );
  return html`<input
    id="key"
    name="key"
    type="password"
    required
    autofocus
    maxlength="1000"
    autocomplete="current-password"
    autocapitalize="none"
    spellcheck="false"
    ${described}
  />`;
}
