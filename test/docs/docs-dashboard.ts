type Person = { email: string; isOnCall: boolean };
export declare function sessionOf(cookie: string | null): Promise<Person | undefined>;
