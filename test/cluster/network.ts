import type { Random } from "../../src/base/random.ts";
import type { Unprivileged } from "../postgres/user.ts";
import type { Janitor } from "./janitor.ts";

/** A network between nodes that can be cut and can lose packets. The test itself is outside of it. */
export type Network = {
  readonly kind: "namespaces" | "proxies";
  /** The address of a node, or of the test as nodes see it. */
  addressOf(node: string): string;
  /** What a process is started by to run on a node, as this user if one is given. */
  under(node: string, user?: Unprivileged): string[];
  /** The URL that one node reaches another by. */
  way(from: string, to: string, url: string): Promise<string>;
  /** From now on nothing that one node sends arrives at the other. */
  cut(from: string, to: string): Promise<void>;
  /** From now on so much of what nodes send is lost. */
  lose(percent: number): Promise<void>;
  /** Ends all cuts and all loss. */
  heal(): Promise<void>;
  close(): Promise<void>;
};

/** The node that stands for the test, its clients and the agent. */
export const outside = "outside";

export type NetworkOptions = {
  readonly nodes: readonly string[];
  readonly janitor: Janitor;
  readonly random: Random;
  /** Default: what `FLOTILLA_TEST_NETWORK` says, else namespaces where they can be made. */
  readonly kind?: Network["kind"] | undefined;
};
