import { systemRandom } from "../base/random.ts";
import type { ServerConfig } from "../runtime/server-config.ts";
import { type AppParts, createApp, frameBytes } from "./app.ts";
import { createAuthenticator } from "./auth/authenticate.ts";
import { createMembers } from "./auth/members.ts";
import { listen, type Listening } from "./listen.ts";
import { knowsPeers, peerCheck } from "./peer-user.ts";
import { openPages } from "./pages/pages.ts";
import { createSockets } from "./socket/sockets.ts";
import { createStreams, usualBufferBytes } from "./streams.ts";

export type ServeParts = Omit<
  AppParts,
  "authenticator" | "members" | "streams" | "apiKeys" | "origins" | "pages"
> & {
  /** What the config says of the server, with a host and a port. */
  server: ServerConfig & { host: string; port: number };
};

/** The whole server: routes and sockets, behind one port. */
export async function serve(parts: ServeParts): Promise<Listening> {
  const { flotilla, sessions = flotilla.sessionService, clock, log } = parts;
  const { host, port, maxConnections, apiKeys = [], tokens, origins = [] } = parts.server;
  const { socketBufferBytes: bufferBytes = usualBufferBytes, framesPerSecond } = parts.server;
  const authenticator = createAuthenticator(
    { apiKeys, tokens, origins },
    { clock, random: systemRandom },
  );
  const pages = await openPages(parts.server.pages);
  await authenticator.ready;
  const members = createMembers(sessions, clock);
  const streams = createStreams(clock, bufferBytes);
  const app = createApp({ ...parts, apiKeys, origins, pages, authenticator, members, streams });
  const sockets = createSockets({
    sessions,
    members,
    authenticator,
    origins,
    maxFrameBytes: frameBytes(parts.maxPayloadBytes),
    bufferBytes,
    framesPerSecond,
    clock,
    log,
    onEvent: (event) => parts.metrics.observe(event),
  });
  const endStreams = () => streams.end();
  const isOpen = apiKeys.length === 0 && !tokens;
  if (isOpen && !(await knowsPeers())) {
    const advice = "every user of this machine may call: configure server.apiKeys to prevent that";
    log.warn({ advice }, "this system doesn't tell whose processes call a server without keys");
  }
  const checkPeer = isOpen ? peerCheck() : undefined;
  return listen(app, { host, port, clock, maxConnections, sockets, endStreams, checkPeer });
}
