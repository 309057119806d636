import { userInfo } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import { yearMs } from "../../../base/durations.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { asTime } from "../../../base/time.ts";
import type { KeyView } from "../../../keys/key.ts";
import type { Revocation, RevokeTokens } from "../../../keys/revocations.ts";
import { type Role, roles } from "../../../protocol/verbs.ts";
import { onTarget } from "../../connect.ts";
import {
  listsByDefault,
  number,
  type TargetFlags,
  withJson,
  withPage,
  withTarget,
} from "../../flags.ts";
import { columns, oneLine, paint, print, printJson, printNotice } from "../../output.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags & { cursor?: string; limit: number };
type CreateFlags = Flags & { role: Role; tenant?: string; payloads?: true; expiresAt?: number };
type RotateFlags = Flags & { overlapMs?: number };
type RevokeTokensFlags = Flags & {
  jti?: string;
  user?: string;
  tenant?: string;
  expiresAt?: number;
};

/** Adds `keys` and `tokens`. */
export function credentialCommands(program: Command): void {
  keysCommand(program);
  tokensCommand(program);
}

function keysCommand(program: Command): void {
  const keys = program
    .command("keys")
    .description("make, list, revoke and rotate keys that servers on the store accept")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla keys create ci --role operator
  $ flotilla keys create acme-app --role operator --tenant acme --expires-at 2027-01-31
  $ flotilla keys list
  $ flotilla keys rotate <keyId> --overlap-ms 3600000
  $ flotilla keys revoke <keyId>

The text of a key goes to standard output once, all else to standard error. The store has only its
hash. A revoked key is refused by every server within a second, on open sockets and streams too.`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(keys.command(words, options).description(does)));

  const listing = command("list", "list keys, the newest first", { isDefault: true });
  withPage(listing, 100).action(list);
  listsByDefault(keys, listing);
  command("create <name>", "make a key, and print its text")
    .addOption(
      new Option("--role <role>", "what it may do").choices(roles).makeOptionMandatory(true),
    )
    .option("--tenant <tenant>", "the only tenant that it acts for (default: any)")
    .option("--payloads", "let it read payloads and results")
    .addOption(
      new Option("--expires-at <time>", "when it ends by itself (default: never)").argParser(
        time("--expires-at"),
      ),
    )
    .action(create);
  command("revoke <keyId>", "end a key at once").action(revoke);
  command("rotate <keyId>", "make a key with the same rights, and let the old one end")
    .addOption(
      new Option(
        "--overlap-ms <ms>",
        "how long the old key still works (default: 24 hours)",
      ).argParser(number("--overlap-ms", { min: 0, max: yearMs })),
    )
    .action(rotate);
}

function tokensCommand(program: Command): void {
  const tokens = program
    .command("tokens")
    .description("refuse users' tokens before they expire")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla tokens revoke --user ada --tenant acme
  $ flotilla tokens revoke --jti 6f1c --expires-at 2027-01-31T08:00:00Z
  $ flotilla tokens list

With --user, everything that the user was issued before now is refused; tokens without the claim
\`iat\` count as issued before. Servers end open sockets and streams within a second.`,
    );
  const command = (words: string, does: string) =>
    withJson(withTarget(tokens.command(words).description(does)));

  command("revoke", "refuse one token, or all that a user has")
    .option("--jti <id>", "the claim jti of the token")
    .option("--user <user>", "the user whose tokens are refused")
    .option("--tenant <tenant>", "the user's tenant (default: default, or that of the key)")
    .addOption(
      new Option(
        "--expires-at <time>",
        "with --jti: when the token expires (default: in 400 days)",
      ).argParser(time("--expires-at")),
    )
    .action(revokeTokens);
  withPage(command("list", "list what is refused"), 100).action(listRevocations);
}

/** Who runs the command, for the list. A server names the key that it was called with instead. */
function commandUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run under a number that no user has.
    return "cli";
  }
}

/** Parses a flag's time. */
function time(flag: string): (text: string) => number {
  return (text) => {
    try {
      return asTime(/^\d+$/.test(text) ? Number(text) : text);
    } catch {
      throw new InvalidArgumentError(
        `${flag} must be a time such as 2027-01-31T08:00:00Z, or milliseconds since 1970`,
      );
    }
  };
}

async function create(name: string, flags: CreateFlags): Promise<void> {
  const { role, tenant, payloads, expiresAt, json } = flags;
  const options = {
    name,
    role,
    ...(tenant !== undefined && { tenant }),
    ...(payloads && { payloads }),
    ...(expiresAt !== undefined && { expiresAtMs: expiresAt }),
    by: commandUser(),
  };
  const created = await onTarget(flags, ({ keys }) => keys.create(options));
  if (json) return printJson(created);
  printNotice(`key ${created.key.keyId} is made. Keep its text: it can't be shown again`);
  print(created.text);
}

async function list(flags: ListFlags): Promise<void> {
  const { json, cursor, limit } = flags;
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget(flags, ({ keys }) => keys.list(options));
  if (json) return printJson(page);
  if (page.keys.length === 0) return print("no keys");
  const heading = ["id", "name", "role", "tenant", "payloads", "status", "expires", "last used"];
  print(columns([heading.map((each) => paint("dim", each)), ...page.keys.map(toRow)]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 100)}`));
}

function toRow(key: KeyView): string[] {
  const shown = (ms: number | null) => (ms === null ? "never" : new Date(ms).toISOString());
  return [
    oneLine(key.keyId, 100),
    oneLine(key.name, 60),
    key.role,
    key.tenant === null ? "any" : oneLine(key.tenant, 60),
    key.payloads ? "yes" : "no",
    key.status,
    shown(key.expiresAtMs),
    shown(key.lastUsedAtMs),
  ];
}

async function revoke(keyId: string, flags: Flags): Promise<void> {
  const key = await onTarget(flags, ({ keys }) => keys.revoke(keyId));
  if (flags.json) return printJson({ key });
  print(`key ${oneLine(key.keyId, 100)} (${oneLine(key.name, 200)}) is revoked`);
}

async function rotate(keyId: string, flags: RotateFlags): Promise<void> {
  const { overlapMs, json } = flags;
  const options = { ...(overlapMs !== undefined && { overlapMs }), by: commandUser() };
  const rotated = await onTarget(flags, ({ keys }) => keys.rotate(keyId, options));
  if (json) return printJson(rotated);
  const { key, replaced, text } = rotated;
  const until = new Date(replaced.expiresAtMs!).toISOString();
  printNotice(`key ${key.keyId} is made; the old one works until ${until}`);
  print(text);
}

async function revokeTokens(flags: RevokeTokensFlags): Promise<void> {
  const { tenant, json } = flags;
  const options = optionsOf(flags);
  const revocation = await onTarget(flags, (flotilla) => flotilla.tokens.revoke(options), {
    tenant,
  });
  if (json) return printJson({ revocation });
  print(`${described(revocation)} is refused`);
}

function optionsOf({ jti, user, tenant, expiresAt }: RevokeTokensFlags): RevokeTokens {
  const by = commandUser();
  if (jti !== undefined && user === undefined && tenant === undefined)
    return { jti, by, ...(expiresAt !== undefined && { expiresAtMs: expiresAt }) };
  if (user !== undefined && jti === undefined && expiresAt === undefined)
    return { user, by, ...(tenant !== undefined && { tenant }) };
  throw new FlotillaError(
    "invalid_option",
    "give --jti <id>, perhaps with --expires-at, or --user <user>, perhaps with --tenant",
  );
}

async function listRevocations(flags: ListFlags): Promise<void> {
  const { json, cursor, limit } = flags;
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget(flags, ({ tokens }) => tokens.revocations(options));
  if (json) return printJson(page);
  if (page.revocations.length === 0) return print("no tokens are revoked");
  const heading = ["refused", "kept until"].map((each) => paint("dim", each));
  const rows = page.revocations.map((each) => [
    described(each),
    new Date(each.expiresAtMs).toISOString(),
  ]);
  print(columns([heading, ...rows]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 2_000)}`));
}

function described(revocation: Revocation): string {
  if ("jti" in revocation) return `the token ${oneLine(revocation.jti, 200)}`;
  const { user, tenant, beforeMs } = revocation;
  const before = new Date(beforeMs).toISOString();
  return `what ${oneLine(user, 200)} of ${oneLine(tenant, 200)} was issued before ${before}`;
}
