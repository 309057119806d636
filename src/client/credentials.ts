import type { ClientOptions } from "./options.ts";

/** The token that the client has, and how it gets another. */
export type Credentials = {
  readonly isRenewable: boolean;
  /** The one that there is, or else a new one. */
  current(): Promise<string | undefined>;
  /** A new one, whatever there is. Asked for at the same time, it is the same. */
  fresh(): Promise<string | undefined>;
  /** Forgets the one that was refused, unless there is another already. */
  forget(token: string | undefined): void;
};

export function createCredentials(token: ClientOptions["token"]): Credentials {
  if (typeof token !== "function") {
    const given = () => Promise.resolve(token);
    return { isRenewable: false, current: given, fresh: given, forget() {} };
  }
  let asked: Promise<string> | undefined;
  let known: string | undefined;

  const ask = async (): Promise<string> => (known = await token());
  const fresh = () =>
    (asked ??= ask().finally(() => {
      asked = undefined;
    }));

  return {
    isRenewable: true,
    fresh,
    current: () => (known === undefined ? fresh() : Promise.resolve(known)),
    forget(refused) {
      if (known === refused) known = undefined;
    },
  };
}
