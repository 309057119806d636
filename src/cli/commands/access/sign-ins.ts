import type { Command } from "commander";
import type { SignInView } from "../../../keys/sign-ins.ts";
import { onTarget } from "../../connect.ts";
import { listsByDefault, type TargetFlags, withJson, withPage, withTarget } from "../../flags.ts";
import { columns, oneLine, paint, print, printJson } from "../../output.ts";

type Flags = TargetFlags & { json?: true };
type ListFlags = Flags & { cursor?: string; limit: number };

/** Adds `sign-ins`. */
export function signInsCommand(program: Command): void {
  const signIns = program
    .command("sign-ins")
    .description("list and end what browsers have signed in to with a key")
    .addHelpText(
      "after",
      `
Examples:
  $ flotilla sign-ins list
  $ flotilla sign-ins end <signInId>

Through a server, a key sees and ends its own sign-ins, and an administrator's key all. An ended one is
refused by every server within a second, on open sockets and streams too.`,
    );
  const command = (words: string, does: string, options = {}) =>
    withJson(withTarget(signIns.command(words, options).description(does)));

  const listing = command("list", "list sign-ins, the newest first", { isDefault: true });
  withPage(listing, 100).action(list);
  listsByDefault(signIns, listing);
  command("end <signInId>", "end a sign-in at once").action(end);
}

async function list(flags: ListFlags): Promise<void> {
  const { json, cursor, limit } = flags;
  const options = { limit, ...(cursor !== undefined && { cursor }) };
  const page = await onTarget(flags, ({ signIns }) => signIns.list(options));
  if (json) return printJson(page);
  if (page.signIns.length === 0) return print("no sign-ins");
  const heading = ["id", "key", "role", "tenant", "at", "from", "made", "last used"];
  print(columns([heading.map((each) => paint("dim", each)), ...page.signIns.map(toRow)]));
  if (page.next !== null) print(paint("dim", `more: --cursor ${oneLine(page.next, 100)}`));
}

function toRow(signIn: SignInView): string[] {
  const shown = (ms: number) => new Date(ms).toISOString();
  return [
    oneLine(signIn.signInId, 100),
    oneLine(signIn.keyName, 60),
    signIn.role ?? "none",
    signIn.tenant === null ? "any" : oneLine(signIn.tenant, 60),
    oneLine(signIn.origin, 100),
    oneLine(signIn.address ?? "unknown", 60),
    shown(signIn.createdAtMs),
    shown(signIn.lastUsedAtMs),
  ];
}

async function end(signInId: string, flags: Flags): Promise<void> {
  const signIn = await onTarget(flags, ({ signIns }) => signIns.end(signInId));
  if (flags.json) return printJson({ signIn });
  print(`sign-in ${oneLine(signIn.signInId, 100)} (key ${oneLine(signIn.keyName, 200)}) is ended`);
}
