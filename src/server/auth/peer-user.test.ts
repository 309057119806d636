import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import process from "node:process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import type { ServerConfig } from "../../runtime/server-config.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { openPeerCheck, type PeerCheckOptions } from "./peer-user.ts";
import { dial, startTestServer } from "../contract/test-server.ts";

const nobody = 65_534;
const isKnowable = process.platform === "linux";

/** Asks from a process of a user of this machine, and gives the answer's status. */
async function askAs(uid: number | undefined, url: string): Promise<number> {
  const script = `fetch(${JSON.stringify(url)}).then((answer) => console.log(answer.status))`;
  const options = uid === undefined ? {} : { uid, cwd: "/" };
  const { stdout } = await promisify(execFile)(process.execPath, ["-e", script], options);
  return Number(stdout);
}

describe.runIf(isKnowable)("on a server without keys, a request over loopback", () => {
  const serve = (host: string, peers?: PeerCheckOptions) =>
    startTestServer({ server: { host, adminPort: 0 }, ...(peers && { peers }) });
  /** What each of the two ports says to a process of that user. */
  const asked = async (uid: number | undefined, { url, adminUrl }: Urls) =>
    Promise.all([askAs(uid, `${url}/v1/tasks`), askAs(uid, `${adminUrl!}/health/live`)]);
  type Urls = { readonly url: string; readonly adminUrl?: string };

  test.each(["127.0.0.1", "::1"])("of the same user is answered: %s", async (host) => {
    await using server = await serve(host);
    expect(await asked(undefined, server)).toEqual([200, 200]);
  });

  // Only the administrator can start a process as another user.
  test.runIf(process.getuid?.() === 0)("of another user is refused", async () => {
    await using server = await serve("127.0.0.1");
    expect(await asked(nobody, server)).toEqual([403, 403]);
  });

  const mine = process.getuid?.() ?? 0;
  /** The kernel's table as it would be, were each connection that of the user after this one. */
  const ofAnother: PeerCheckOptions = {
    uid: mine,
    read: async (path) => withUser(await readFile(path, "latin1"), mine + 1),
  };
  /** Readable when the server starts, and never again. */
  const closedLater = (): PeerCheckOptions => {
    let reads = 0;
    const failure = Object.assign(new Error("too many open files"), { code: "EMFILE" });
    return {
      uid: mine,
      read: (path) => (++reads > 2 ? Promise.reject(failure) : readFile(path, "latin1")),
    };
  };

  const expectRefusals = async (peers: PeerCheckOptions, status: number, code: string) => {
    await using server = await serve("127.0.0.1", peers);
    for (const url of [`${server.url}/v1/tasks`, `${server.adminUrl!}/health/live`]) {
      const answer = await fetch(url, { headers: { Connection: "close" } });
      expect(answer.status).toBe(status);
      expect(await answer.json()).toMatchObject({ error: { code } });
      expect(answer.headers.get("retry-after")).toBe(status === 503 ? "1" : null);
    }
    await expect(dial(server.socketUrl)).rejects.toMatchObject({ status, code });
  };

  test("of another user is refused on both ports, and so is a socket", () =>
    expectRefusals(ofAnother, 403, "forbidden"));

  test("isn't let in where the kernel's table can't be read any more", () =>
    expectRefusals(closedLater(), 503, "unavailable"));
});

describe("a server without keys, where the system doesn't name the caller's user", () => {
  const read = () => Promise.reject(new Error("no such file"));
  const warnings = async (server: ServerConfig) => {
    const said: string[] = [];
    const warn: Logger["warn"] = (fields, message) =>
      void said.push(`${message}: ${JSON.stringify(fields)}`);
    const log = { ...silentLogger, warn };
    await using started = await startTestServer({ server, peers: { uid: 1_000, read }, log });
    const { status } = await fetch(`${started.url}/health/live`);
    return { status, said: said.filter((line) => line.includes("cannot check which user calls")) };
  };

  test("warns when it starts, and answers", async () => {
    const { status, said } = await warnings({});
    expect(status).toBe(200);
    expect(said).toHaveLength(1);
    expect(said[0]).toContain("configure server.apiKeys");
  });

  test("doesn't warn where there are keys", async () => {
    expect((await warnings({ apiKeys: ["a key of sixteen or more"] })).said).toEqual([]);
  });
});

/** The table with that user in each of its lines. */
function withUser(table: string, uid: number): string {
  return table
    .split("\n")
    .map((line) => line.replace(/^((?:\s*\S+){7}\s+)\d+/, `$1${uid}`))
    .join("\n");
}

describe("the kernel's table", () => {
  const line = (local: string, remote: string, uid: number, inode: number) =>
    `   1: ${local} ${remote} 01 00000000:00000000 00:00000000 00000000 ${uid} 0 ${inode} 1 0`;
  const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid";
  const socket = {
    remoteAddress: "127.0.0.1",
    remotePort: 0x9c40,
    localAddress: "127.0.0.1",
    localPort: 0x1f90,
  };
  const check = async (tcp: string, tcp6 = head) => {
    const read = async (path: string) => (path.endsWith("6") ? tcp6 : tcp);
    return (await openPeerCheck({ uid: 1_000, read }))!(socket);
  };

  test("names the user at the other end, not at this one", async () => {
    const server = line("0100007F:1F90", "0100007F:9C40", 1_000, 7);
    const client = (uid: number, inode = 8) => line("0100007F:9C40", "0100007F:1F90", uid, inode);
    expect(await check([head, server, client(1_000)].join("\n"))).toBe("same");
    expect(await check([head, server, client(0)].join("\n"))).toBe("same");
    expect(await check([head, server, client(1_001)].join("\n"))).toBe("other");
    // A socket whose process has closed it is shown as the administrator's, whatever user that was.
    expect(await check([head, server, client(0, 0)].join("\n"))).toBe("other");
    expect(await check([head, server].join("\n"))).toBe("other");
  });

  test("names it where the caller's socket is of IPv6 and the server's of IPv4", async () => {
    const mapped = "0000000000000000FFFF00000100007F";
    const client = line(`${mapped}:9C40`, `${mapped}:1F90`, 1_000, 8);
    expect(await check(head, [head, client].join("\n"))).toBe("same");
  });

  const client = line("0100007F:9C40", "0100007F:1F90", 1_000, 8);
  const counted = (tableOf: (reads: number) => string) => {
    let reads = 0;
    const read = async (path: string) => (path.endsWith("6") ? head : tableOf(++reads));
    const reset = () => void (reads = 0);
    return { read, reset, count: () => reads };
  };

  test("is read again where it lacks the caller, and a few times only", async () => {
    // The first is when the server starts.
    const late = counted((reads) => (reads < 4 ? head : [head, client].join("\n")));
    expect(await (await openPeerCheck({ uid: 1_000, read: late.read }))!(socket)).toBe("same");
    const never = counted(() => head);
    const whose = await openPeerCheck({ uid: 1_000, read: never.read });
    never.reset();
    expect(await whose!(socket)).toBe("other");
    expect(never.count()).toBe(5);
  });

  test("is read once for all calls before that, and again for all calls during it", async () => {
    const table = counted(() => [head, client].join("\n"));
    const under = Promise.withResolvers<void>();
    let isHeld = false;
    const read = async (path: string) => {
      const found = await table.read(path);
      if (isHeld) await under.promise;
      return found;
    };
    const whose = (await openPeerCheck({ uid: 1_000, read }))!;
    table.reset();
    isHeld = true;
    const first = Array.from({ length: 100 }, () => whose(socket));
    await eventLoopTurns();
    expect(table.count()).toBe(1);
    const during = Array.from({ length: 100 }, () => whose(socket));
    await eventLoopTurns();
    expect(table.count()).toBe(1);
    under.resolve();
    expect(new Set(await Promise.all([...first, ...during]))).toEqual(new Set(["same"]));
    expect(table.count()).toBe(2);
  });

  test("that isn't there when the server starts leaves the check out", async () => {
    const read = () => Promise.reject(new Error("no such file"));
    expect(await openPeerCheck({ uid: 1_000, read })).toBeUndefined();
  });

  test("that can't be read later lets no caller pass for one of the same user", async () => {
    let isThere = true;
    const read = async () => {
      if (!isThere) throw new Error("too many open files");
      return head;
    };
    const whose = await openPeerCheck({ uid: 1_000, read });
    isThere = false;
    expect(await whose!(socket)).toBe("unknown");
  });

  test("of IPv6 that was never there doesn't count", async () => {
    const read = async (path: string) => {
      if (path.endsWith("6")) throw new Error("no such file");
      return head;
    };
    expect(await (await openPeerCheck({ uid: 1_000, read }))!(socket)).toBe("other");
  });
});
