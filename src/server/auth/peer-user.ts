import { readFile } from "node:fs/promises";
import { endianness } from "node:os";
import process from "node:process";

/** Both ends of a connection, as a socket of Node names them. */
export type SocketEnds = {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  readonly localAddress?: string | undefined;
  readonly localPort?: number | undefined;
};

/**
 * Whose process is at the other end of a connection over loopback: the same user's or the
 * administrator's (`same`), that of any `other`, or `unknown` where the kernel's table can't be read now,
 * as for want of file descriptors.
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

// The kernel lists connections bit by bit, so that one look may miss a line while others come and go.
const maxReads = 5;

/**
 * Linux lists every connection with its user. Undefined where there is no such table when the server
 * starts, as on other systems: a table that can't be read later is trouble, and lets no caller in.
 */
export async function openPeerCheck({
  uid = process.getuid?.(),
  read = (path) => readFile(path, "latin1"),
}: PeerCheckOptions = {}): Promise<PeerCheck | undefined> {
  if (uid === undefined) return undefined;
  // A machine without IPv6 has the first table alone.
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
    // A connection that has ended already has no addresses any more.
    if (!peer || !own) return "other";
    try {
      for (let reads = 0; reads < maxReads; reads++) {
        for (const { form, readUsers } of readable) {
          if (peer[form] === undefined || own[form] === undefined) continue;
          // The caller's end of the connection, which is another line than this server's end.
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

const rootUid = 0;

/**
 * One call for all that ask before it begins, and the next after its end: what it finds is never older
 * than the question.
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

/** The user of each socket by its ends, this side's first, without those that no process has any more. */
function usersIn(table: string): Map<string, number> {
  const users = new Map<string, number>();
  for (const line of table.split("\n").slice(1)) {
    const [, local, remote, , , , , uid, , inode] = line.trim().split(/ +/);
    // The kernel shows a socket without a process as the administrator's.
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

/** Words of 32 bits that are in the order of the network, in that of this machine. */
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
