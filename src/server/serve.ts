import { systemRandom } from "../base/random.ts";
import type { ServerConfig } from "../runtime/server-config.ts";
import { createAnonymous, usualAnonymous } from "./admission/anonymous-connections.ts";
import { type AppParts, createAdminApp, createApp, frameBytes } from "./app.ts";
import { createAuthenticator } from "./auth/authenticate.ts";
import { createBodies } from "./admission/incoming-bytes.ts";
import { createMembers } from "./auth/members.ts";
import { createCallerLimits, usualAtOnce } from "./admission/caller-limits.ts";
import { listen, type Listening, usualConnections } from "./listen.ts";
import { openPeerCheck, type PeerCheckOptions } from "./auth/peer-user.ts";
import { openPages } from "./pages.ts";
import { createSockets } from "./socket/sockets.ts";
import { createStreams, usualBufferBytes } from "./event-streams.ts";

export type ServeParts = Omit<
  AppParts,
  | "authenticator"
  | "members"
  | "streams"
  | "limits"
  | "bodies"
  | "anonymous"
  | "apiKeys"
  | "origins"
  | "pages"
> & {
  /** What the config says of the server, with a host and a port. */
  server: ServerConfig & { host: string; port: number };
  /** How the users of this machine are told apart. Default: as the kernel says. */
  peers?: PeerCheckOptions;
  /** What callers may be in the middle of sending. Default 256 MiB. */
  bodyBytes?: number | undefined;
};

/** The whole server: routes and sockets behind one port, health and metrics perhaps behind another too. */
export async function serve(parts: ServeParts): Promise<Listening> {
  const { flotilla, sessions = flotilla.sessionService, clock, log } = parts;
  const {
    host,
    port,
    adminPort,
    maxConnections,
    apiKeys = [],
    tokens,
    origins = [],
  } = parts.server;
  const { socketBufferBytes: bufferBytes = usualBufferBytes, framesPerSecond } = parts.server;
  const authenticator = createAuthenticator(
    { apiKeys, tokens, origins },
    { clock, random: systemRandom },
  );
  const pages = await openPages(parts.server.pages);
  await authenticator.ready;
  const members = createMembers(sessions, clock);
  const streams = createStreams(clock, bufferBytes);
  const limits = createCallerLimits(clock, parts.server);
  const most = maxConnections ?? usualConnections;
  const usual = usualAnonymous(most, parts.server.maxAnonymous);
  const { maxAnonymousPerAddress: mostPerAddress = usual.mostPerAddress } = parts.server;
  // No more of a user's are of use at once.
  const mostPerUser = parts.server.requestsAtOnce?.user ?? usualAtOnce.user;
  const anonymous = createAnonymous({ most: usual.most, mostPerAddress, mostPerUser });
  const bodies = createBodies(parts.bodyBytes);
  const used = { authenticator, members, streams, limits, bodies, anonymous };
  const app = createApp({ ...parts, ...used, apiKeys, origins, pages });
  const sockets = createSockets({
    sessions,
    members,
    authenticator,
    origins,
    limits,
    bodies,
    anonymous,
    maxFrameBytes: frameBytes(parts.maxPayloadBytes),
    bufferBytes,
    framesPerSecond,
    clock,
    log,
    onEvent: (event) => parts.metrics.observe(event),
  });
  const endStreams = () => streams.end();
  const isOpen = apiKeys.length === 0 && !tokens;
  const checkPeer = isOpen ? await openPeerCheck(parts.peers) : undefined;
  if (isOpen && !checkPeer) {
    const advice = "every user of this machine may call: configure server.apiKeys to prevent that";
    log.warn({ advice }, "this system doesn't tell whose processes call a server without keys");
  }
  const main = await listen(app, {
    host,
    port,
    clock,
    maxConnections,
    sockets,
    anonymous,
    endStreams,
    checkPeer,
  });
  if (adminPort === undefined) return main;
  const admin = createAdminApp({ ...parts, authenticator });
  try {
    const beside = await listen(admin, { host, port: adminPort, clock, checkPeer });
    const close = async () => void (await Promise.all([main.close(), beside.close()]));
    return { ...main, adminUrl: beside.url, close };
  } catch (error) {
    await main.close();
    throw error;
  }
}
