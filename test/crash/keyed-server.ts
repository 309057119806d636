import { fileURLToPath } from "node:url";
import type { ServerConfig } from "../../src/runtime/server-config.ts";
import { freePort } from "../free-ports.ts";
import type { Fleet } from "./fleet.ts";
import type { KeyedGiven } from "./keyed-server-process.ts";
import type { PodProcess } from "./pod-handle.ts";

export type KeyedServer = PodProcess & { readonly port: number; readonly url: string };

const script = fileURLToPath(new URL("./keyed-server-process.ts", import.meta.url));

/** A pod with a server whose callers need keys or tokens, in a process of its own. */
export async function startKeyedServer(fleet: Fleet, server: ServerConfig): Promise<KeyedServer> {
  const port = await freePort();
  const given: KeyedGiven = { port, server };
  const pod = await fleet.start({ script, given });
  return Object.assign(pod, { port, url: `http://127.0.0.1:${port}` });
}
