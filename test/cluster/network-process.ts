/** Opens a network with a process in it, and waits to be killed. */
import { spawn } from "node:child_process";
import process from "node:process";
import { seededRandom } from "../../src/base/random.ts";
import { startJanitor } from "./janitor.ts";
import { openNetwork } from "./open-network.ts";

const network = await openNetwork({
  nodes: ["a", "b"],
  janitor: startJanitor(),
  random: seededRandom(1),
  kind: "namespaces",
});
const [program, ...args] = [...network.under("a"), "sleep", "1000"];
const child = spawn(program!, args, { stdio: "ignore" });
child.once("spawn", () => {
  const [, space] = /--net=(\S+)-a$/.exec(args[0]!)!;
  process.send!({ pid: child.pid, space });
});
