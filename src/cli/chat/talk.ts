import { openAsBlob } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, extname } from "node:path";
import process from "node:process";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { Entry, Part } from "../../protocol/message.ts";
import type { EntriesPage, SessionView } from "../../sessions/service.ts";
import { oneLine } from "../output.ts";
import { type ChatService, startTerminalChat, type TerminalChat } from "./chat.ts";
import { type ChatLine, chatHelp, type WakeTime } from "./lines.ts";
import type { ChatTerminal } from "./terminal.ts";
import { createTranscript, type Transcript, type TranscriptOptions } from "./transcript.ts";

type TalkParts = {
  service: ChatService;
  tenant: string;
  user: string;
  form: TranscriptOptions["form"];
  terminal: Pick<ChatTerminal, "output" | "prompt">;
};

export type Talk = ReturnType<typeof createTalk>;

/** The session that is open, and what of it is shown. A fork takes its place. */
type Place = {
  readonly session: SessionView;
  readonly conversation: TerminalChat;
  readonly transcript: Transcript;
};

const mediaTypes: Readonly<Record<string, string>> = {
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
  ".avif": "image/avif",
  ".svg": "image/svg+xml",
  ".mp3": "audio/mpeg",
  ".wav": "audio/wav",
  ".mp4": "video/mp4",
  ".webm": "video/webm",
  ".pdf": "application/pdf",
  ".json": "application/json",
  ".html": "text/html",
  ".csv": "text/csv",
  ".md": "text/markdown",
  ".txt": "text/plain",
};

/** How many entries are looked through at a time for the one that an edit says anew. */
const lookedAt = 100;

/** A user who talks in the terminal, in one session after the other. */
export function createTalk({ service, tenant, user, form, terminal }: TalkParts) {
  const ids = uuidv7(systemClock, systemRandom);
  const waiters = new Set<() => void>();
  let place: Place;
  /** The last message of a user that was shown. */
  let lastSaid: Entry | undefined;
  let answeredSeq = 0;
  let hasEnded = false;
  let end: (error?: unknown) => void = () => {};
  const ended = new Promise<void>((resolve, reject) => {
    end = (error) => {
      hasEnded = true;
      for (const check of waiters) check();
      if (error === undefined) resolve();
      else reject(error as Error);
    };
  });
  ended.catch(() => {});

  const open = (session: SessionView, after: number): void => {
    const transcript = createTranscript({ output: terminal.output, form });
    transcript.beginAfter(after);
    lastSaid = undefined;
    answeredSeq = 0;
    const { agents, lastSeq } = session;
    const onEntry = (entry: Entry) => {
      if (isSaid(entry)) lastSaid = entry;
      // Where no agent answers, a message is its own answer.
      if (entry.role !== "assistant" && agents.length > 0) return;
      answeredSeq = entry.seq;
      // Of a pipe, what failed before it isn't its failure.
      if (form !== "live" && entry.outcome === "failed" && entry.seq > lastSeq) {
        process.exitCode = 1;
      }
      for (const check of waiters) check();
    };
    const conversation = startTerminalChat({
      service,
      session: { ...session, tenant },
      user,
      transcript,
      clock: systemClock,
      random: systemRandom,
      ids,
      onEntry,
      onIdle: terminal.prompt,
      hasPeople: form === "live",
    });
    const before = place as Place | undefined;
    place = { session, conversation, transcript };
    before?.conversation.leave();
    conversation.ended.then(
      () => place.conversation === conversation && end(),
      (error: unknown) => place.conversation === conversation && end(error),
    );
  };

  const sendFile = async (path: string, text: string): Promise<number> => {
    const { conversation, session } = place;
    const file = {
      filename: basename(path),
      mediaType: mediaTypes[extname(path).toLowerCase()] ?? "application/octet-stream",
    };
    const part = await service.upload(tenant, session.sessionId, await contentOf(path), file);
    const said: Part[] = text === "" ? [] : [{ type: "text", text }];
    return conversation.send([{ ...part }, ...said]);
  };

  const fork = async (atSeq = place.transcript.place.lastSeq): Promise<undefined> => {
    const { sessionId, users } = place.session;
    if (atSeq === 0) throw new FlotillaError("invalid_input", "there is nothing to fork yet");
    const forked = await service.fork(tenant, sessionId, { id: ids.next(), atSeq, users });
    place.transcript.notice(`(forked at #${atSeq}: session ${oneLine(forked.sessionId, 200)})`);
    open(forked, atSeq);
    terminal.prompt();
  };

  /** A fork begins with entries that were shown in its parent, and an old session with some that weren't. */
  const lastSaidBefore = async (seq: number): Promise<Entry | undefined> => {
    const { sessionId } = place.session;
    for (let end = seq; end > 0; end -= lookedAt) {
      let found: Entry | undefined;
      let after: number | null = Math.max(0, end - lookedAt);
      while (after !== null && after < end) {
        const page: EntriesPage = await service.entries(tenant, sessionId, {
          after,
          limit: end - after,
        });
        found = page.entries.findLast(isSaid) ?? found;
        after = page.next;
      }
      if (found) return found;
    }
    return undefined;
  };

  const edit = async (seq: number | undefined, text: string): Promise<number> => {
    const { session, transcript } = place;
    const { sessionId, users } = session;
    const said =
      seq === undefined
        ? (lastSaid ?? (await lastSaidBefore(transcript.place.lastSeq)))
        : (await service.entries(tenant, sessionId, { after: seq - 1, limit: 1 })).entries[0];
    if (!said || !isSaid(said) || (seq ?? said.seq) !== said.seq) {
      const where =
        seq === undefined ? "there is no message to edit yet" : `#${seq} is no message of a user`;
      throw new FlotillaError("invalid_input", where);
    }
    // Its files stay.
    const files = said.parts.filter(({ type }) => type === "file");
    const edited = await service.edit(tenant, sessionId, {
      id: ids.next(),
      messageId: said.messageId,
      author: user,
      parts: [...files, { type: "text", text }],
      users,
    });
    const { sessionId: forkId } = edited.session;
    transcript.notice(`(edited #${edited.seq}: session ${oneLine(forkId, 200)})`);
    open({ ...edited.session, lastSeq: edited.seq }, edited.seq - 1);
    return edited.seq;
  };

  const wake = async (when: WakeTime, message: string): Promise<undefined> => {
    const { session, transcript } = place;
    const key = `chat-${ids.next()}`;
    const asked = { key, author: user, ...when, ...(message !== "" && { message }) };
    const { atMs } = await service.wake(tenant, session.sessionId, asked);
    transcript.notice(`(wake ${key} is set for ${new Date(atMs).toISOString()})`);
    terminal.prompt();
  };

  const listWakes = async (): Promise<undefined> => {
    const { session, transcript } = place;
    const wakes = await service.wakes(tenant, session.sessionId);
    if (wakes.length === 0) transcript.notice("(no wake is set)");
    for (const { key, agent, atMs, preview = "" } of wakes) {
      const about = [new Date(atMs).toISOString(), oneLine(agent, 80), oneLine(preview, 200)];
      transcript.notice(`(wake ${oneLine(key, 100)}: ${about.join(" ").trimEnd()})`);
    }
    terminal.prompt();
  };

  const cancelWake = async (key: string): Promise<undefined> => {
    const { session, transcript } = place;
    const cancelled = await service.cancelWake(tenant, session.sessionId, { key, author: user });
    const what = cancelled ? "is cancelled" : "isn't set";
    transcript.notice(`(wake ${oneLine(key, 100)} ${what})`);
    terminal.prompt();
  };

  return {
    ended,
    get sessionId(): string {
      return place.session.sessionId;
    },
    /** Shows a session from behind a place on, and has what follows go there. */
    open,
    notice: (text: string): void => place.transcript.notice(text),
    leave: (): void => place.conversation.leave(),
    stop: (): Promise<boolean> => place.conversation.stop(),

    /** Resolves once it is done: to the seq of what was said, if an answer is to be expected. */
    perform(line: ChatLine): Promise<number | undefined> {
      switch (line.type) {
        case "say":
          return place.conversation.send([{ type: "text", text: line.text }]);
        case "file":
          return sendFile(line.path, line.text);
        case "fork":
          return fork(line.atSeq);
        case "edit":
          return edit(line.seq, line.text);
        case "wake":
          return wake(line.when, line.message);
        case "wakes":
          return listWakes();
        case "cancel_wake":
          return cancelWake(line.key);
        case "help":
          for (const each of chatHelp) place.transcript.notice(each);
          terminal.prompt();
          return Promise.resolve(undefined);
      }
    },

    /** Resolves once there is an answer at this place or behind; to false where the conversation ends before. */
    answered(seq: number): Promise<boolean> {
      return new Promise((resolve) => {
        const check = () => {
          if (answeredSeq < seq && !hasEnded) return;
          waiters.delete(check);
          resolve(answeredSeq >= seq);
        };
        waiters.add(check);
        check();
      });
    },
  };
}

function isSaid({ kind, role }: Entry): boolean {
  return kind === "message" && role === "user";
}

async function contentOf(path: string): Promise<Blob> {
  const found = await stat(path).catch((error: unknown) => {
    const { code = "" } = error as NodeJS.ErrnoException;
    throw new FlotillaError("invalid_input", `${oneLine(path, 200)} can't be read: ${code}`);
  });
  if (found.isFile()) return openAsBlob(path);
  throw new FlotillaError("invalid_input", `${oneLine(path, 200)} is no file`);
}
