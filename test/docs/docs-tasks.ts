import type { NodePgDatabase } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { task } from "flotilla";

type Report = { status: number; ready: boolean; url: string };

export declare function fetchReport(id: string): Promise<Report>;
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
export const report = task<{ full?: boolean }>("report", {});
export const reporter = report.handle(() => {});
