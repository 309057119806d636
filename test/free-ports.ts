import { randomInt } from "node:crypto";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * Below the ports that systems give to connections and to servers that ask for any: one of those
 * could be given to another process before the server that it was found for listens on it.
 */
const usual: PortRange = { lowest: 11_000, highest: 32_000 };

export type PortRange = { readonly lowest: number; readonly highest: number };

/**
 * The first of so many ports in a row that nothing on the loopback listens on. They stay this process's own:
 * no other gets them from here, before a server listens on them or while it is down.
 */
export async function freePorts(
  count: number,
  { lowest, highest }: PortRange = usual,
): Promise<number> {
  for (;;) {
    const first = randomInt(lowest, highest - count);
    const ports = Array.from({ length: count }, (_, nth) => first + nth);
    const claims = await Promise.all(ports.map(claim));
    const free = claims.every(Boolean) ? await Promise.all(ports.map(isFree)) : [false];
    if (free.every(Boolean)) return first;
    for (const each of claims) each?.close();
  }
}

export const freePort = (): Promise<number> => freePorts(1);

/**
 * Takes a port for this process, for as long as it lives: by the UDP port of the same number, which no server
 * of ours uses, and which the system takes back.
 */
async function claim(port: number): Promise<Socket | undefined> {
  const socket = createSocket("udp4");
  socket.unref();
  try {
    socket.bind({ port, address: "127.0.0.1", exclusive: true });
    await once(socket, "listening");
    return socket;
  } catch {
    socket.close();
    return undefined;
  }
}

async function isFree(port: number): Promise<boolean> {
  const probe = createServer();
  try {
    await once(probe.listen(port, "127.0.0.1"), "listening");
    return true;
  } catch {
    return false;
  } finally {
    probe.close();
  }
}
