import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { basename } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { seededRandom } from "../../src/base/random.ts";
import { built } from "../built.ts";
import { pauseFor, until } from "../crash/until.ts";
import { part } from "../parts.ts";
import { freePort } from "../free-ports.ts";
import { startJanitor } from "./janitor.ts";
import { whyNoNamespaces } from "./namespaces.ts";
import type { Network } from "./network.ts";
import { openNetwork } from "./open-network.ts";

const hindrance = await whyNoNamespaces();
const kinds: readonly Network["kind"][] = ["namespaces", "proxies"];
const script = (name: string) => built.program(fileURLToPath(new URL(name, import.meta.url)));
/** Long enough for what isn't cut to arrive, and for TCP to send again what was. */
const whileMs = 600;

/** A server on the node `a` and a client on `b`, with a connection between them. */
async function connected(kind: Network["kind"]) {
  const janitor = startJanitor();
  onTestFinished(() => janitor.close());
  const network = await openNetwork({
    nodes: ["a", "b"],
    janitor,
    random: seededRandom(1),
    kind,
  });
  onTestFinished(() => network.close());
  const start = async (node: string, role: string, url: string) => {
    const { hostname, port } = new URL(url);
    const under = network.under(node);
    const [program, ...args] = [...under, process.execPath, script("./echo-process.ts")];
    const child = spawn(program!, [...args, role, hostname, port], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    const lines: string[] = [];
    createInterface(child.stdout).on("line", (line) => void lines.push(line));
    await until(`the ${role} is ready`, () => lines.includes("ready"));
    return { child, lines };
  };
  const url = `tcp://${network.addressOf("a")}:${await freePort()}`;
  const server = await start("a", "server", url);
  const client = await start("b", "client", await network.way("b", "a", url));
  return {
    network,
    send: (text: string) => void client.child.stdin.write(`${text}\n`),
    arrived: (text: string) => server.lines.includes(text),
    cameBack: (text: string) => client.lines.includes(text),
  };
}

describe.each(kinds)("a network of %s", (kind) => {
  const isPossible = kind === "proxies" || hindrance === undefined;

  test.runIf(isPossible)("cuts one way or both, and nothing is lost for good", async () => {
    const { network, send, arrived, cameBack } = await connected(kind);
    send("first");
    await until("it comes back", () => cameBack("first"));

    await network.cut("b", "a");
    send("there");
    await pauseFor(whileMs);
    expect(arrived("there")).toBe(false);
    await network.heal();
    await until("what was cut off comes back", () => cameBack("there"));

    await network.cut("a", "b");
    send("back");
    await until("it arrives", () => arrived("back"));
    await pauseFor(whileMs);
    expect(cameBack("back")).toBe(false);
    await network.cut("b", "a");
    send("both");
    await pauseFor(whileMs);
    expect(arrived("both")).toBe(false);
    await network.heal();
    await until("everything comes back", () => cameBack("back") && cameBack("both"));
  });

  test.runIf(isPossible)("loses as much as it is told to", async () => {
    const { network, send, cameBack } = await connected(kind);
    await network.lose(100);
    await pauseFor(whileMs);
    send("lost");
    await pauseFor(whileMs);
    expect(cameBack("lost")).toBe(false);
    await network.heal();
    await until("it is sent again", () => cameBack("lost"));
  });
});

test.runIf(hindrance === undefined)(
  "a network whose test is killed takes its namespaces and their processes with it",
  async () => {
    const test: ChildProcess = spawn(process.execPath, [script("./network-process.ts")], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    const ended = once(test, "exit").then(() => Promise.reject(new Error("it ended by itself")));
    ended.catch(() => {});
    const message = once(test, "message") as Promise<[{ pid: number; space: string }]>;
    const [{ pid, space }] = await Promise.race([message, ended]);
    const spaces = () => execFileSync(part("ip"), ["netns", "list"], { encoding: "utf8" });
    expect(spaces()).toContain(basename(space));
    test.kill("SIGKILL");
    await until("they are gone", () => !spaces().includes(basename(space)));
    await until("what ran in them is gone", () => !existsSync(`/proc/${pid}`));
  },
);
