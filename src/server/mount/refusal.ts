import { html, raw } from "hono/html";
import type { FlotillaError } from "../../base/errors.ts";
import { publicErrorOf, statusOf } from "../errors.ts";
import { baseStyle, headersOf } from "../home/page.ts";

const style = `${baseStyle}
main { max-width: 34rem; margin: 0 auto; padding-top: 4vh }
h1 { margin-bottom: .75rem }
`;
const pageHeaders = headersOf(style);

/** Whether a browser opens a page with the request, and no program asks. */
export function asksForPage({ method, headers }: Request): boolean {
  return method === "GET" && /\btext\/html\b/.test(headers.get("accept") ?? "");
}

/** Refuses a request of a mount: with a page to a browser that opens one, else as routes do. */
export async function refuseMounted(request: Request, error: FlotillaError): Promise<Response> {
  const { code } = error;
  const { message } = publicErrorOf(error);
  const status = statusOf(code);
  const common = { "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff" };
  if (!asksForPage(request)) {
    const body = { error: { code, message, details: {} } };
    return Response.json(body, { status, headers: common });
  }
  const headers = { ...common, ...pageHeaders };
  return new Response(await refusalPage(status, message), { status, headers });
}

/** The page as a whole. `html` escapes all interpolated text. */
async function refusalPage(status: number, message: string): Promise<string> {
  const title = status < 500 ? "You are not let in" : "Not now";
  const sentence = `${message.slice(0, 1).toUpperCase()}${message.slice(1)}.`;
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
            <p>${sentence}</p>
            <p><a href="">Try again</a></p>
          </main>
        </body>
      </html>`,
  );
}
