import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { FlotillaError } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { subprotocol } from "../../protocol/frames.ts";
import type { AuthRequest } from "../auth/authenticate.ts";
import { isWaitedFor, retryAfterHeader, statusOf } from "../errors.ts";
import { frameErrorOf } from "./send-buffer.ts";

/** The path of sockets. */
export const socketPath = "/v1/socket";
const bearerProtocol = "bearer.";

/**
 * The credentials of a request for a socket. Browsers can't send headers with it, so their token comes as
 * a subprotocol (`flotilla.v1, bearer.<token>`), or as a ticket in the URL.
 */
export function authRequestOf(request: IncomingMessage): AuthRequest {
  const { headers, url = "" } = request;
  const header = (name: string) => {
    const value = headers[name];
    return typeof value === "string" ? value : value?.[0];
  };
  const offered = (header("sec-websocket-protocol") ?? "").split(",").map((each) => each.trim());
  if (offered.length > 0 && offered[0] !== "" && !offered.includes(subprotocol)) {
    throw new FlotillaError(
      "unsupported",
      `none of the subprotocols is supported: offer \`${subprotocol}\``,
    );
  }
  const bearer = offered.find((each) => each.startsWith(bearerProtocol));
  const query = queryOf(url);
  for (const name of ["token", "access_token", "authorization", "key"]) {
    if (!query.has(name)) continue;
    throw new FlotillaError(
      "invalid_option",
      `credentials must not be in the URL (\`${name}\`), which logs keep: send them as the subprotocol \`${bearerProtocol}<token>\`, or get a ticket`,
    );
  }
  return {
    header,
    headerNames: () => Object.keys(headers),
    bearer: bearer?.slice(bearerProtocol.length),
    ticket: query.get("ticket") ?? undefined,
    user: query.get("user") ?? undefined,
    method: request.method,
    url,
    isSocket: true,
  };
}

export function pathOf(url = ""): string {
  return url.split("?")[0]!;
}

/** Answers with the error as a route would, and ends the connection. */
export function refuseUpgrade(socket: Duplex, thrown: unknown, log: Logger): void {
  const error = frameErrorOf(thrown, log);
  const { code, message, details } = error;
  const body = JSON.stringify({ error: { code, message, details } });
  const status = statusOf(code, details);
  const lines = [
    `HTTP/1.1 ${status} ${code}`,
    "Connection: close",
    "Content-Type: application/json",
    "Cache-Control: no-store",
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...(status === 401 ? ["WWW-Authenticate: Bearer"] : []),
    ...(isWaitedFor(status) ? [`Retry-After: ${retryAfterHeader(error)}`] : []),
  ];
  socket.end(`${lines.join("\r\n")}\r\n\r\n${body}`, () => socket.destroy());
}

function queryOf(url: string): URLSearchParams {
  const at = url.indexOf("?");
  return new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
}
