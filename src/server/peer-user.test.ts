import { execFile } from "node:child_process";
import process from "node:process";
import { promisify } from "node:util";
import { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { listen } from "./listen.ts";
import { peerCheck } from "./peer-user.ts";

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
  const serve = (host: string, checkPeer = peerCheck()) =>
    listen(
      new Hono().get("/", (c) => c.text("hello")),
      { host, port: 0, clock: systemClock, checkPeer },
    );

  test.each(["127.0.0.1", "::1"])("of the same user is answered: %s", async (host) => {
    const server = await serve(host);
    expect(await askAs(undefined, server.url)).toBe(200);
    await server.close();
  });

  // Only the administrator can start a process as somebody else.
  test.runIf(process.getuid?.() === 0)("of another user is refused", async () => {
    const server = await serve("127.0.0.1");
    expect(await askAs(nobody, server.url)).toBe(403);
    await server.close();
  });

  test("of another user than this process has is refused, and one of the administrator isn't", async () => {
    const mine = process.getuid!();
    const others = await serve("127.0.0.1", peerCheck({ uid: mine + 1 }));
    expect(await askAs(undefined, others.url)).toBe(mine === 0 ? 200 : 403);
    await others.close();
  });
});

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
  const check = (tcp: string, tcp6 = head) =>
    peerCheck({ uid: 1_000, read: async (path) => (path.endsWith("6") ? tcp6 : tcp) })(socket);

  test("names the user at the other end, not at this one", async () => {
    const server = line("0100007F:1F90", "0100007F:9C40", 1_000, 7);
    const client = (uid: number, inode = 8) => line("0100007F:9C40", "0100007F:1F90", uid, inode);
    expect(await check([head, server, client(1_000)].join("\n"))).toBe("same");
    expect(await check([head, server, client(0)].join("\n"))).toBe("same");
    expect(await check([head, server, client(1_001)].join("\n"))).toBe("other");
    // A socket whose process has closed it is shown as the administrator's, whoever that was.
    expect(await check([head, server, client(0, 0)].join("\n"))).toBe("other");
    expect(await check([head, server].join("\n"))).toBe("other");
  });

  test("names it where the caller's socket is of IPv6 and the server's of IPv4", async () => {
    const mapped = "0000000000000000FFFF00000100007F";
    const client = line(`${mapped}:9C40`, `${mapped}:1F90`, 1_000, 8);
    expect(await check(head, [head, client].join("\n"))).toBe("same");
  });

  test("that can't be read says nothing", async () => {
    const read = () => Promise.reject(new Error("no such file"));
    expect(await peerCheck({ uid: 1_000, read })(socket)).toBe("unknown");
  });
});
