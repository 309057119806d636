import { FlotillaError } from "../../base/errors.ts";
import type { NatsRights } from "../../sessions/log/jetstream/rights.ts";

/** A user of NATS servers, in an account of its own, and what it may do there. */
export type NatsUser = {
  readonly account: string;
  readonly user: string;
  readonly rights: NatsRights;
};

/** The variable of the servers' environment that has the password, so that no file does. */
export const passwordVariable = "NATS_PASSWORD";

const nameForm = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;

/** Refuses names that a server's config would read as something else. */
export function checkNatsUser({ account, user }: Pick<NatsUser, "account" | "user">): void {
  for (const [flag, name] of Object.entries({ "--account": account, "--user": user })) {
    if (nameForm.test(name)) continue;
    throw new FlotillaError(
      "invalid_option",
      `${flag} must be a letter and up to 63 letters, digits, "-" and "_", not ${JSON.stringify(name.slice(0, 80))}`,
    );
  }
}

/** The part of a server's config that makes the account and its user. */
export function accountConfig({ account, user, rights }: NatsUser): string {
  return `accounts {
  ${account} {
    jetstream: enabled
    users: [
      {
        user: ${user}
        # Of the server's environment. It has to begin with a letter, or it is read as a number.
        password: $${passwordVariable}
        permissions: {
          publish: { allow: [${subjects(rights.publish)}] }
          subscribe: { allow: [${subjects(rights.subscribe)}] }
        }
      }
    ]
  }
}
`;
}

/** The same for servers whose accounts are made by `nsc`. */
export function nscCommands({ account, user, rights }: NatsUser): string {
  const list = (all: readonly string[]) => `'${all.join(",")}'`;
  return `nsc add account --name ${account}
nsc edit account --name ${account} --js-disk-storage -1 --js-mem-storage 0 --js-streams -1
nsc add user --account ${account} --name ${user} \\
  --allow-pub ${list(rights.publish)} \\
  --allow-sub ${list(rights.subscribe)}
`;
}

function subjects(all: readonly string[]): string {
  return all.map((each) => `\n            ${JSON.stringify(each)}`).join(",") + "\n          ";
}
