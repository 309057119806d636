import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { task } from "flotilla";

export {
  abort,
  connect,
  contextValue,
  defineConfig,
  snooze,
  startClaimer,
  startPod,
} from "flotilla";

export declare function fetchReport(id: string): Promise<{ ready: boolean; url: string }>;
export const order = task<{ order: string }>("order", {});
export declare function pay(input: { order: string }): Promise<void>;
export declare function refund(order: string): Promise<void>;
export type User = { id: string };
export declare function loadUser(input: unknown): Promise<User>;
export declare const rows: readonly object[];
export declare function importRow(row: object): Promise<void>;
export declare const db: NodePgDatabase;
export const shipments = pgTable("shipments", { order: text().notNull() });
export declare const url: string;
export declare const urls: readonly string[];
export declare const title: string;
export const combine = task<{ title: string }>("combine", {});
export declare function write(title: string, texts: readonly unknown[]): Promise<void>;
export const fetchPage = task<{ url: string }>("fetch-page", {});
export const countWords = task<object>("count-words", {});
export const countLinks = task<object>("count-links", {});
export const report = task<{ full?: boolean }>("report", {});
export const reporter = report.handle(() => {});
export declare const store: string;
export declare function greet(input: unknown): Promise<string>;
