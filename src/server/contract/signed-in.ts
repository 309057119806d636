import { type IncomingHttpHeaders, request } from "node:http";

type Headers = Record<string, string>;

type Asked = {
  readonly method?: string;
  readonly headers?: Headers;
  readonly body?: string;
  /** The address that it comes from. Default 127.0.0.1. */
  readonly from?: string;
};

type Answer = {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any;
};

/** A request as a browser may be made to send it: with any headers, `Host` and `Origin` too. */
export function ask(server: { url: string }, path: string, asked: Asked = {}): Promise<Answer> {
  const { method = "GET", headers = {}, body, from } = asked;
  return new Promise((resolve, reject) => {
    const options = { method, headers, ...(from !== undefined && { localAddress: from }) };
    const sent = request(`${server.url}${path}`, options, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (more: string) => (text += more));
      answer.on("error", reject).on("end", () => {
        const json: unknown = text.startsWith("{") ? JSON.parse(text) : undefined;
        resolve({ status: answer.statusCode!, headers: answer.headers, text, json });
      });
    });
    sent.on("error", reject).end(body);
  });
}

export type SignInAsked = {
  readonly next?: string;
  readonly headers?: Headers;
  readonly from?: string;
};

/** Sends the form of the page. */
export function sendForm(
  server: { url: string },
  key: string,
  { next, headers, from }: SignInAsked = {},
): Promise<Answer> {
  return ask(server, "/sign-in", {
    method: "POST",
    headers: {
      "Content-Type": "application/x-www-form-urlencoded",
      Origin: server.url,
      ...headers,
    },
    body: String(new URLSearchParams({ key, ...(next !== undefined && { next }) })),
    ...(from !== undefined && { from }),
  });
}

/** Signs in, and gives the cookie as a browser sends it. */
export async function signInWith(
  server: { url: string },
  key: string,
  asked: SignInAsked = {},
): Promise<string> {
  const { status, headers, text } = await sendForm(server, key, asked);
  const cookie = headers["set-cookie"]?.[0]?.split(";")[0];
  if (status === 303 && cookie !== undefined) return cookie;
  throw new Error(`signing in was answered with ${status}: ${text}`);
}
