import { readFile } from "node:fs/promises";
import { endianness } from "node:os";
import process from "node:process";

/** Both ends of a connection, as Node's sockets name them. */
export type SocketEnds = {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  readonly localAddress?: string | undefined;
  readonly localPort?: number | undefined;
};

/**
 * Which user's process is at the other end of a loopback connection: `same` for this user or root,
 * `other` for any other user, `unknown` where the kernel's table can't be read now, such as for lack of
 * file descriptors.
 */
export type PeerCheck = (ends: SocketEnds) => Promise<"same" | "other" | "unknown">;

export type PeerCheckOptions = {
  /** Default: the user of this process. */
  uid?: number | undefined;
  read?: (path: string) => Promise<string>;
};

const tables = [
  { form: "ipv4", path: "/proc/net/tcp" },
  { form: "ipv6", path: "/proc/net/tcp6" },
] as const;

// The kernel lists connections piecemeal, so one read may miss a line while connections come and go.
const maxReads = 5;
const rootUid = 0;

/**
 * Linux lists every connection with its user. Undefined where there is no such table when the server
 * starts, as on other systems. A table that can't be read later is an error, and lets no caller in.
 */
export async function openPeerCheck({
  uid = process.getuid?.(),
  read = (path) => readFile(path, "latin1"),
}: PeerCheckOptions = {}): Promise<PeerCheck | undefined> {
  if (uid === undefined) return undefined;
  // A machine without IPv6 has only the first table.
  const tried = await Promise.allSettled(tables.map(({ path }) => read(path)));
  const readable = tables
    .filter((_, at) => tried[at]!.status === "fulfilled")
    .map(({ form, path }) => ({
      form,
      readUsers: coalesced(async () => usersIn(await read(path))),
    }));
  if (readable.length === 0) return undefined;
  return async (ends) => {
    const peer = procAddress(ends.remoteAddress, ends.remotePort);
    const own = procAddress(ends.localAddress, ends.localPort);
    // A connection that has ended has no addresses any more.
    if (!peer || !own) return "other";
    try {
      for (let reads = 0; reads < maxReads; reads++) {
        for (const { form, readUsers } of readable) {
          if (peer[form] === undefined || own[form] === undefined) continue;
          // The line of the caller's end; this server's end of the connection has a line of its own.
          const user = (await readUsers()).get(`${peer[form]} ${own[form]}`);
          if (user !== undefined) return user === uid || user === rootUid ? "same" : "other";
        }
      }
    } catch {
      return "unknown";
    }
    return "other";
  };
}

/**
 * Shares one call among all requests made before it begins; later requests share the next one. So a
 * result is never older than its request.
 */
function coalesced<Found>(act: () => Promise<Found>): () => Promise<Found> {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<Found> | undefined;
  return () => {
    if (next) return next;
    next = last.then(() => {
      next = undefined;
      return act();
    });
    last = next.catch(() => {});
    return next;
  };
}

/** The user of each socket by its ends, local first, without sockets that no process holds any more. */
function usersIn(table: string): Map<string, number> {
  const users = new Map<string, number>();
  for (const line of table.split("\n").slice(1)) {
    const [, local, remote, , , , , uid, , inode] = line.trim().split(/ +/);
    // The kernel shows a socket without a process as root's.
    if (inode !== undefined && inode !== "0") users.set(`${local} ${remote}`, Number(uid));
  }
  return users;
}

/** An address and port as the tables of IPv4 and IPv6 write them. */
function procAddress(
  address: string | undefined,
  port: number | undefined,
): { readonly ipv4?: string; readonly ipv6: string } | undefined {
  if (address === undefined || port === undefined) return undefined;
  const suffix = `:${hex(port, 4)}`;
  const plain = address.startsWith("::ffff:") ? address.slice("::ffff:".length) : address;
  if (plain === "::1") return { ipv6: `${procWords([0, 0, 0, 1])}${suffix}` };
  const bytes = plain.split(".").map(Number);
  if (bytes.length !== 4) return undefined;
  const ipv4 = bytes.reduce((sum, byte) => sum * 256 + byte, 0);
  return {
    ipv4: `${procWords([ipv4])}${suffix}`,
    ipv6: `${procWords([0, 0, 0xffff, ipv4])}${suffix}`,
  };
}

/** Converts 32-bit words from network order to this machine's byte order. */
function procWords(values: readonly number[]): string {
  return values.map((word) => hex(endianness() === "LE" ? swapped(word) : word, 8)).join("");
}

function swapped(word: number): number {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(word);
  return bytes.readUInt32LE();
}

function hex(value: number, digits: number): string {
  return value.toString(16).toUpperCase().padStart(digits, "0");
}
