pub mod breaker;
