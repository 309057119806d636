import { userInfo } from "node:os";
import process from "node:process";
import type { Command } from "commander";
import { Option } from "commander";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import { chatOnStore, chatThroughServer, type ChatService } from "../chat/chat.ts";
import { chatHelp, readLine } from "../chat/lines.ts";
import { createTalk, type Talk } from "../chat/talk.ts";
import { type ChatTerminal, openTerminal } from "../chat/terminal.ts";
import { firstSeq } from "../chat/transcript.ts";
import { onStore } from "../connect.ts";
import { type TargetFlags, withJson, withTarget } from "../flags.ts";
import { oneLine } from "../output.ts";

type Flags = TargetFlags & {
  agent?: string;
  user?: string;
  tenant?: string;
  json?: true;
};

export function chatCommand(program: Command): void {
  const chat = program
    .command("chat [session]")
    .description("chat with an agent in the terminal, in a new or an existing session")
    .option("--agent <name>", "the agent of a new session")
    .addOption(
      new Option("--user <user>", "the author of messages (default: your login name)").env(
        "FLOTILLA_USER",
      ),
    )
    .option("--tenant <tenant>", "the tenant of the session")
    .addHelpText(
      "after",
      `
Ctrl-C stops the answer, twice in a row leaves. The session stays; its id is printed at the end.
A line that begins with / is a command:
${chatHelp.map((each) => `  ${each}`).join("\n")}

Examples:
  $ flotilla chat --agent helper
  $ flotilla chat 01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e
  $ flotilla chat --agent helper --url https://flotilla.example
  $ echo 'What is the weather?' | flotilla chat --agent helper
  $ echo '/file photo.png What is this?' | flotilla chat --agent helper`,
    );
  withJson(withTarget(chat)).action(run);
}

async function run(sessionId: string | undefined, flags: Flags): Promise<void> {
  if ((sessionId === undefined) === (flags.agent === undefined)) {
    throw new FlotillaError(
      "invalid_option",
      "name an existing session, or an agent for a new one: --agent helper",
    );
  }
  const { url, user, tenant } = flags;
  if (url === undefined) {
    return onStore(flags, ({ sessionService }) =>
      chat(chatOnStore(sessionService), sessionId, flags),
    );
  }
  const { openRemote, serverKey } = await import("../remote.ts");
  // A token determines its user, so name none where there is one.
  const name = user ?? (serverKey() === undefined ? ownName() : undefined);
  const { client } = openRemote(url, { user: name, tenant });
  try {
    await chat(chatThroughServer(client), sessionId, flags);
  } finally {
    client.close();
  }
}

async function chat(
  service: ChatService,
  sessionId: string | undefined,
  { agent, user = ownName(), tenant = "default", json }: Flags,
): Promise<void> {
  const session =
    sessionId === undefined
      ? await service.create(tenant, { agents: [agent!], users: [user] })
      : await service.get(tenant, sessionId);
  const terminal = openTerminal();
  const isLive = process.stdout.isTTY === true && process.stdin.isTTY === true;
  const form = json ? "json" : isLive ? "live" : "lines";
  const talk = createTalk({ service, tenant, user, form, terminal });
  talk.open(session, firstSeq(session));
  const onKey = interrupts(talk);
  terminal.onInterrupt(onKey.pressed);
  process.once("SIGTERM", () => talk.leave());
  try {
    const typing = isLive ? type(talk, terminal, onKey.reset) : sendEach(talk, terminal);
    await Promise.race([talk.ended, typing]);
  } finally {
    talk.leave();
    terminal.close();
  }
  if (isLive) talk.notice(`session ${oneLine(talk.sessionId, 200)}`);
}

/** Ctrl-C once stops the answer, twice in a row leaves. */
function interrupts(talk: Talk) {
  let pressed = false;
  return {
    reset: () => {
      pressed = false;
    },
    pressed: () => {
      if (pressed) return talk.leave();
      pressed = true;
      talk.stop().then(
        (stopped) =>
          talk.notice(stopped ? "(stopping; Ctrl-C again leaves)" : "(Ctrl-C again leaves)"),
        (error: unknown) => talk.notice(`(stopping failed: ${errorText(error)})`),
      );
    },
  };
}

/**
 * Sends each typed line at once; the agent's policy decides about messages during a turn. What comes behind a
 * command waits for it, because it may lead to another session.
 */
async function type(talk: Talk, terminal: ChatTerminal, onSent: () => void): Promise<void> {
  terminal.prompt();
  for await (const text of terminal.lines) {
    if (text.trim() === "") {
      terminal.prompt();
      continue;
    }
    onSent();
    const onFailure = (error: unknown) => {
      const what = hasCode(error, "unknown_outcome") ? "it may be stored" : "not stored";
      talk.notice(`(${what}: ${errorText(error)})`);
      terminal.prompt();
    };
    try {
      const line = readLine(text);
      const performed = talk.perform(line);
      if (line.type === "say") performed.catch(onFailure);
      else await performed;
    } catch (error) {
      onFailure(error);
    }
  }
}

/** Performs each line of a pipe, and waits for the answer before the next. */
async function sendEach(talk: Talk, { lines }: ChatTerminal): Promise<void> {
  for await (const line of lines) {
    if (line.trim() === "") continue;
    const seq = await talk.perform(readLine(line));
    if (seq !== undefined && !(await talk.answered(seq))) return;
  }
}

function ownName(): string {
  try {
    return userInfo().username;
  } catch {
    return "user";
  }
}

function errorText(error: unknown): string {
  return oneLine(messageOf(error), 200);
}
