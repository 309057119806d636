import process from "node:process";
import { openNamespaces, whyNoNamespaces } from "./namespaces.ts";
import type { Network, NetworkOptions } from "./network.ts";
import { openProxies } from "./proxies.ts";

/** A network of namespaces; where they can't be made, of proxies on the loopback. */
export async function openNetwork(options: NetworkOptions): Promise<Network> {
  const wanted = options.kind ?? process.env["FLOTILLA_TEST_NETWORK"];
  if (wanted === "proxies") return openProxies(options);
  const hindrance = await whyNoNamespaces();
  if (hindrance === undefined) return openNamespaces(options);
  if (wanted === "namespaces") throw new Error(hindrance);
  console.log(`${hindrance} The network is made of proxies.`);
  return openProxies(options);
}
