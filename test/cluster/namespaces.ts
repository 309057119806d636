import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import process from "node:process";
import { part } from "../parts.ts";
import { type Network, type NetworkOptions, outside } from "./network.ts";

const folder = "/run/netns";
let opened = 0;

/** Why network namespaces can't be made here; undefined if they can. */
export async function whyNoNamespaces(): Promise<string | undefined> {
  if (process.platform !== "linux") return "Network namespaces are there on Linux alone.";
  if (process.getuid?.() !== 0) return "Only root may make network namespaces.";
  const name = `flotilla-${process.pid}-probe`;
  try {
    await ip([], [`netns add ${name}`]);
    await inside(name, part("nft"), ["-f", "-"], "add table inet storm\n");
    return undefined;
  } catch (error) {
    return `Network namespaces can't be made: ${(error as Error).message.trim()}.`;
  } finally {
    await ip([], [`netns del ${name}`]).catch(() => {});
  }
}

/**
 * Each node is a network namespace with one address. All are joined by a bridge in a namespace of its own,
 * so that the machine gets one interface more and none of its rules count. What is cut or lost is dropped
 * where it arrives, as a bad line does it: no sender is told.
 */
export async function openNamespaces({ nodes, janitor }: NetworkOptions): Promise<Network> {
  const id = `${process.pid.toString(36)}${(opened++).toString(36)}`;
  const interfaceName = `fl${id}`;
  const nameOf = (node: string) => `flotilla-${id}-${node}`;
  const prefix = freePrefix();
  const addressOf = (node: string) =>
    `${prefix}.${node === outside ? 1 : 10 + nodes.indexOf(node)}`;
  const pathOf = (node: string) => `${folder}/${nameOf(node)}`;
  const bridge = "bridge";

  janitor.inTheEnd(`ip link del dev ${interfaceName}`);
  for (const node of [bridge, ...nodes]) {
    const name = nameOf(node);
    janitor.inTheEnd(`ip netns pids ${name} | xargs -r kill -9; ip netns del ${name}`);
  }
  await ip(
    [],
    [
      ...[bridge, ...nodes].map((node) => `netns add ${nameOf(node)}`),
      `link add name ${interfaceName} type veth peer name ${outside} netns ${nameOf(bridge)}`,
      ...nodes.map(
        (node) =>
          `link add name eth0 netns ${nameOf(node)} type veth peer name ${node} netns ${nameOf(bridge)}`,
      ),
      `addr add ${addressOf(outside)}/24 dev ${interfaceName}`,
      `link set dev ${interfaceName} up`,
    ],
  );
  await ip(
    ["-n", nameOf(bridge)],
    [
      "link add name br0 type bridge",
      "link set dev br0 up",
      ...[outside, ...nodes].flatMap((node) => [
        `link set dev ${node} master br0`,
        `link set dev ${node} up`,
      ]),
    ],
  );
  const nft = (node: string, rules: string) =>
    inside(nameOf(node), part("nft"), ["-f", "-"], `${rules}\n`);
  await Promise.all(
    nodes.map(async (node) => {
      await ip(
        ["-n", nameOf(node)],
        ["link set dev lo up", `addr add ${addressOf(node)}/24 dev eth0`, "link set dev eth0 up"],
      );
      await nft(node, rules);
    }),
  );

  return {
    kind: "namespaces",
    addressOf,
    under(node, user) {
      const as = user ? ["--setuid", String(user.uid), "--setgid", String(user.gid)] : [];
      return ["nsenter", `--net=${pathOf(node)}`, ...as, "--"];
    },
    way: async (_from, _to, url) => url,
    cut: (from, to) => nft(to, `add element inet storm cut { ${addressOf(from)} }`),
    async lose(percent) {
      const rule = `add rule inet storm lossy numgen random mod 100 <= ${percent - 1} drop`;
      await Promise.all(nodes.map((node) => nft(node, rule)));
    },
    async heal() {
      const mended = "flush set inet storm cut\nflush chain inet storm lossy";
      await Promise.all(nodes.map((node) => nft(node, mended)));
    },
    // The janitor takes it down.
    close: async () => {},
  };
}

const rules = `table inet storm {
  set cut { type ipv4_addr; }
  chain lossy { }
  chain arriving {
    type filter hook input priority 0; policy accept;
    iif lo accept
    ip saddr @cut drop
    jump lossy
  }
}`;

/** The first three numbers of addresses that this machine has no way to yet. */
function freePrefix(): string {
  const routes = existsSync("/proc/net/route") ? readFileSync("/proc/net/route", "utf8") : "";
  for (let nth = 0; nth < 200; nth++) {
    const [a, b] = [200 + ((process.pid + nth) % 50), (process.pid * 7 + nth) % 250];
    // The kernel writes them in hexadecimal, with the last number first.
    const route = [b, a, 10].map((each) => each.toString(16).padStart(2, "0")).join("");
    if (!new RegExp(`\\t00${route}\\t`, "i").test(routes)) return `10.${a}.${b}`;
  }
  throw new Error("there are no free addresses for the network of the test");
}

function ip(options: readonly string[], lines: readonly string[]): Promise<void> {
  return run(part("ip"), [...options, "-batch", "-"], `${lines.join("\n")}\n`);
}

function inside(name: string, program: string, args: readonly string[], input: string) {
  return run("nsenter", [`--net=${folder}/${name}`, "--", program, ...args], input);
}

function run(program: string, args: readonly string[], input: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, (error, _out, said) => {
      if (error) reject(new Error(`${program} ${args.join(" ")}: ${said || error.message}`));
      else resolve();
    });
    child.stdin!.on("error", () => {});
    child.stdin!.end(input);
  });
}
