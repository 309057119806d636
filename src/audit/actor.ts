import { AsyncLocalStorage } from "node:async_hooks";
import { hostname } from "node:os";
import { FlotillaError } from "../base/errors.ts";
import { currentOrigin } from "../pods/unhandled-errors.ts";

/** Who acts. */
export type Actor = {
  /**
   * `key` and `user` call a server with a key or a token, `local` is a program on the server's machine
   * without credentials, `cli` is the command line on a store, `program` is code that calls `flotilla.*`.
   */
  readonly kind: "key" | "user" | "local" | "cli" | "program";
  readonly tenant?: string;
  /** Of a `key`: its name, or what else identifies it. */
  readonly keyName?: string;
  /** Of a `user` and a `local`: itself; of a `cli`: the user of the machine; of others: whom they act for. */
  readonly user?: string;
  readonly role?: string;
  /** From where: the address of a connection, or the name of the machine. */
  readonly address?: string;
  /** The id that the caller gave the act. The same id again is the same act. */
  readonly actId?: string;
};

/** A header that is sent twice comes as one, with a comma between both. */
const actIdPattern = /^[!-+\--~]{1,200}$/;

const actors = new AsyncLocalStorage<Actor>();
const program: Actor = { kind: "program", address: hostname() };

/** Runs code whose acts are this actor's. */
export function actAs<Result>(actor: Actor, run: () => Result): Result {
  if (actor.actId !== undefined && !actIdPattern.test(actor.actId)) {
    throw new FlotillaError(
      "invalid_input",
      "the id of an act must be 1 to 200 visible ASCII characters without a comma, such as a UUID",
    );
  }
  return actors.run(actor, run);
}

/** The actor of the code that runs now. Undefined in handlers and agents, whose acts leave no entries. */
export function currentActor(): Actor | undefined {
  // First, because an attempt may begin within the request that has enqueued its task.
  if (currentOrigin() !== undefined) return undefined;
  return actors.getStore() ?? program;
}

/** Whether the actor looks after the fleet: by its role, or because it is on the machine itself. */
export function isOperator({ kind, role }: Actor): boolean {
  return kind === "cli" || kind === "local" || role === "operator" || role === "admin";
}

/** The actor as one word that pages are found by. */
export function actorName({ kind, keyName, user }: Actor): string {
  if (kind === "local") return kind;
  const name = kind === "key" ? keyName : user;
  return name === undefined ? kind : `${kind}/${name}`;
}
