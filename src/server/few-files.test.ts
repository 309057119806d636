import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { until } from "../base/contract/movable-clock.ts";

test("a server that runs out of file descriptors lives, and serves again when there are some", async () => {
  const script = fileURLToPath(new URL("contract/few-files.ts", import.meta.url));
  const child = spawn("sh", ["-c", `ulimit -n 48 && exec "$0" "$1"`, process.execPath, script], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const [port] = (await once(child, "message")) as [number];
  const sockets: Socket[] = [];
  let refused = 0;
  for (let n = 0; n < 200; n++) {
    const socket = connect(port, "127.0.0.1");
    socket.on("error", () => {});
    socket.on("close", () => refused++);
    sockets.push(socket);
  }
  await until("some to be turned away", () => refused > 0);
  for (const socket of sockets) socket.destroy();
  await until("an answer", async () => {
    const answer = await fetch(`http://127.0.0.1:${port}/`).catch(() => undefined);
    return answer?.status === 200;
  });
  expect(child.exitCode).toBe(null);
  child.disconnect();
  await once(child, "exit");
});
