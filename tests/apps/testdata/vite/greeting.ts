export interface Greeting { text: string }

export const greeting: Greeting = { text: 'Good morning' }
